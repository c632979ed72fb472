// SPDX-License-Identifier: Apache-2.0
#include "ptx/source_map.hpp"

#include <algorithm>
#include <utility>

namespace ctxbroker::software::ptx {

// Any text may be a name here, and it ends up in a message.
void SourceMap::name_file(std::uint32_t file, std::string name) {
  for (char& c : name) {
    if (static_cast<unsigned char>(c) < ' ') c = '?';
  }
  files_[file] = std::move(name);
}

std::uint64_t SourceMap::bytes() const {
  std::uint64_t bytes = marks_.size() * sizeof(Mark);
  for (const auto& [number, name] : files_) bytes += bytes_of_file + name.size();
  return bytes;
}

std::string SourceMap::text_of(SourcePosition position) const {
  const auto name = files_.find(position.file);
  if (name == files_.end() || position.line == 0) return {};
  return name->second + ":" + std::to_string(position.line);
}

std::string SourceMap::at(std::uint32_t ptx_line) const {
  const auto after = std::upper_bound(
      marks_.begin(), marks_.end(), ptx_line,
      [](std::uint32_t wanted, const Mark& mark) { return wanted < mark.ptx_line; });
  if (after == marks_.begin()) return {};
  const Mark& mark = *(after - 1);
  std::string text = text_of(mark.position);
  const std::string outer = text_of(mark.inlined_at);
  if (!text.empty() && !outer.empty()) text += ", inlined at " + outer;
  return text;
}

}  // namespace ctxbroker::software::ptx
