// SPDX-License-Identifier: Apache-2.0
// Reads what a shared library asks of the loader, without loading it. Safe for any bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ctxbroker::image {
class ElfInMemory;
}

namespace ctxbroker::validate {

class ElfFile {
 public:
  struct Symbol {
    std::string name;
    bool is_data = false;
  };

  // Throws Failed when it is no 64-bit shared library for this kind of machine, or is damaged.
  explicit ElfFile(const std::filesystem::path& path);

  const std::vector<char>& bytes() const& noexcept { return bytes_; }
  const std::vector<std::string>& needed() const& noexcept { return needed_; }
  const std::vector<std::string>& run_path() const& noexcept { return run_path_; }
  // Symbols of its own that others can see.
  const std::vector<Symbol>& exports() const& noexcept { return exports_; }
  bool has_text_relocations() const noexcept { return text_relocations_; }
  bool has_executable_stack() const noexcept { return executable_stack_; }
  bool has_writable_code() const noexcept { return writable_code_; }

 private:
  void read_segments(const image::ElfInMemory& file);
  void read_dynamic(const image::ElfInMemory& file, std::uint64_t offset, std::uint64_t bytes);
  void read_exports(const image::ElfInMemory& file);

  std::vector<char> bytes_;
  std::vector<std::string> needed_, run_path_;
  std::vector<Symbol> exports_;
  bool text_relocations_ = false, executable_stack_ = false, writable_code_ = false;
};

}  // namespace ctxbroker::validate
