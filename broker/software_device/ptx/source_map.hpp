// SPDX-License-Identifier: Apache-2.0
// Which lines of source files the instructions of a PTX text come from: its .file and .loc
// directives, as nvcc -lineinfo writes them. Asked only after a fault.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace ctxbroker::software::ptx {

struct SourcePosition {
  std::uint32_t file = 0;  // its number in the text; 0: unknown
  std::uint32_t line = 0;
};

class SourceMap {
 public:
  // Bytes of memory that a file takes beside its name, about.
  static constexpr std::uint64_t bytes_of_file = 80;

  // What follows in the text, up to the next call, comes from there. `inlined_at` is where the
  // function was called that the compiler expanded in place. In the order of the text.
  void add(std::uint32_t ptx_line, SourcePosition position, SourcePosition inlined_at = {}) {
    marks_.push_back({ptx_line, position, inlined_at});
  }
  void name_file(std::uint32_t file, std::string name);
  std::uint64_t bytes() const;  // of memory, about

  // "/src/blur.cu:12", "/src/tools.cuh:7, inlined at /src/blur.cu:12"; empty: the text does not
  // say.
  std::string at(std::uint32_t ptx_line) const;

 private:
  struct Mark {
    std::uint32_t ptx_line;
    SourcePosition position, inlined_at;
  };
  std::string text_of(SourcePosition position) const;

  std::vector<Mark> marks_;  // by ptx_line
  std::unordered_map<std::uint32_t, std::string> files_;
};

}  // namespace ctxbroker::software::ptx
