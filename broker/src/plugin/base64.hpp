// SPDX-License-Identifier: Apache-2.0
// Bytes as text (RFC 4648, with padding).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ctxbroker::detail {

std::string to_base64(const std::vector<std::byte>& bytes);
// Returns nothing for text that to_base64 does not write.
std::optional<std::vector<std::byte>> from_base64(std::string_view text);

}  // namespace ctxbroker::detail
