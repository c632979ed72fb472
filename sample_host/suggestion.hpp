// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...?"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ctxbroker::sample_host {

// Insertions, deletions and replacements that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The nearest candidate when it is near enough to be a slip (a third of its length), else empty.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// "a, b, c".
std::string join(const std::vector<std::string>& words);

}  // namespace ctxbroker::sample_host
