// SPDX-License-Identifier: Apache-2.0
// Checks one instruction against a plain function, on every engine and level, for all combinations
// of edge values and some random ones. Values travel as their bits, so that little is compiled for
// each of the hundreds of cases.
#pragma once

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "support.hpp"

namespace ctxbroker::software::exec::testing {

// A register operand: how PTX declares and loads it, and which values are worth trying.
struct OperandKind {
  const char* type = "";
  const char* move = "";
  unsigned bytes = 0;  // in memory; predicates are 32-bit numbers, 0 or 1
  bool is_predicate = false, is_float = false, is_signed = false;
  const std::vector<std::uint64_t>* edges = nullptr;
};
template <class T>
const OperandKind& operand_kind();  // bool, 16- to 64-bit integers, float, double

using Inputs = const std::uint64_t*;
struct InstructionCase {
  // "add.s32": operands are appended. Or with %d and %0 to %3 where they belong; in braces for
  // several instructions.
  std::string text;
  OperandKind result;
  std::vector<OperandKind> sources;
  std::function<std::uint64_t(Inputs)> expected;
  // Whether a result is right; empty: same bits, or NaN both.
  std::function<bool(std::uint64_t expected, std::uint64_t found, Inputs)> accept = {};
};
void check_case(const InstructionCase& instruction);

template <class T>
std::uint64_t to_bits(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
T from_bits(std::uint64_t bits) {
  if constexpr (std::is_same_v<T, bool>) {
    return bits != 0;
  } else {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
}

template <class D, class... S, class Reference>
InstructionCase make_case(const std::string& text, Reference reference) {
  return {text, operand_kind<D>(), {operand_kind<S>()...}, [reference](Inputs in) {
            return [&]<std::size_t... I>(std::index_sequence<I...>) {
              return to_bits<D>(static_cast<D>(reference(from_bits<S>(in[I])...)));
            }
            (std::index_sequence_for<S...>());
          }};
}

template <class D, class... S, class Reference>
void check(const std::string& text, Reference reference) {
  check_case(make_case<D, S...>(text, reference));
}

// For one source: `accept(expected, found, input)` says whether a result is right.
template <class D, class S, class Reference, class Accept>
void check_with(const std::string& text, Reference reference, Accept accept) {
  InstructionCase instruction = make_case<D, S>(text, reference);
  instruction.accept = [accept](std::uint64_t expected, std::uint64_t found, Inputs in) {
    return accept(from_bits<D>(expected), from_bits<D>(found), from_bits<S>(in[0]));
  };
  check_case(instruction);
}

}  // namespace ctxbroker::software::exec::testing
