// SPDX-License-Identifier: Apache-2.0
// Numbers and constant expressions of PTX. Internal to ptx/.
#pragma once

#include <cstdint>
#include <string_view>

#include "ptx/module.hpp"
#include "ptx/token_stream.hpp"

namespace ctxbroker::software::ptx {

// Whether the next token can begin a constant: a number, a sign, "(", WARP_SZ.
bool at_constant(const TokenStream& tokens) noexcept;

// One constant expression: an Operand of kind integer or floating. Integers have 64 bits and wrap;
// of floating-point numbers only a sign is evaluated. Throws SyntaxError.
Operand parse_constant(TokenStream& tokens);

// An integer constant (sums and products; others in parentheses) between `least` and `most`; `what`
// names it in the error.
std::uint64_t parse_integer(TokenStream& tokens, std::uint64_t least, std::uint64_t most,
                            std::string_view what);

// "+ 8", "- 8", several of them, or nothing: the sum.
std::int64_t parse_offset(TokenStream& tokens);

}  // namespace ctxbroker::software::ptx
