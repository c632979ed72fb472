// SPDX-License-Identifier: Apache-2.0
#include "module/kernel_names.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ctxbroker::detail {
namespace {

constexpr std::size_t most_names = 8;  // in one text

// How many letters have to be added, removed or replaced to make one of the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<std::string> kernels_like(std::string_view wanted, const StoredImage& image,
                                      int compute_capability) {
  if (!image.about) return {};
  std::vector<std::pair<std::size_t, std::string>> found;
  for (const ImageEntry& entry : image.about->entries) {
    if (!runs_on(entry, compute_capability)) continue;
    for (const std::string& name : entry.kernels) {
      // A mangled name that contains the wanted one is the likeliest of all.
      const bool contains = name.find(wanted) != std::string::npos;
      found.emplace_back(contains ? 0 : edit_distance(wanted, name), name);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::vector<std::string> names;
  names.reserve(found.size());
  for (auto& [distance, name] : found) names.push_back(std::move(name));
  return names;
}

std::string no_such_kernel(std::string_view module, std::string_view wanted,
                           const StoredImage& image, int compute_capability) {
  std::string text =
      "module \"" + std::string(module) + "\" has no kernel \"" + std::string(wanted) + "\"";
  const std::vector<std::string> names = kernels_like(wanted, image, compute_capability);
  const std::size_t shown = std::min(names.size(), most_names);
  for (std::size_t i = 0; i < shown; ++i) {
    text += (i == 0 ? "; it has \"" : ", \"") + names[i] + "\"";
  }
  if (names.size() > shown) text += " and " + std::to_string(names.size() - shown) + " more";
  return text + "; was it declared extern \"C\"?";
}

}  // namespace ctxbroker::detail
