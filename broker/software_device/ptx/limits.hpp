// SPDX-License-Identifier: Apache-2.0
// What the parser refuses to hold: bounds far above what compilers write, so that no text, however
// hostile, takes all memory or the whole stack. Internal to ptx/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ctxbroker::software::ptx::limits {

constexpr std::size_t text_bytes = std::size_t{256} << 20;
constexpr std::size_t token_bytes = std::size_t{64} << 10;
constexpr std::size_t instructions = std::size_t{4} << 20;     // in a module
constexpr std::size_t variables = std::size_t{1} << 20;        // in a module, registers included
constexpr std::size_t functions = std::size_t{64} << 10;       // in a module
constexpr std::size_t labels = std::size_t{1} << 20;           // in a module
constexpr std::size_t initial_values = std::size_t{4} << 20;   // in a module
constexpr std::size_t table_entries = std::size_t{256} << 10;  // in a module, of all tables
constexpr std::size_t operands = 4096;              // of one instruction, nested included
constexpr std::size_t modifiers = 32;               // of one instruction
constexpr std::size_t dimensions = 16;              // of one array
constexpr std::size_t nesting = 64;                 // braces, brackets, parentheses
constexpr std::uint32_t register_range = 1U << 20;  // N of "%r<N>"
constexpr std::uint64_t variable_bytes = std::uint64_t{1} << 40;
constexpr std::uint32_t alignment = 1U << 16;  // bytes

}  // namespace ctxbroker::software::ptx::limits
