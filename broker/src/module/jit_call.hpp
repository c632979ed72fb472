// SPDX-License-Identifier: Apache-2.0
// The options of one call that compiles, links or loads, and the driver's logs and times.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "driver/driver_table.hpp"
#include "module/module_image.hpp"

namespace ctxbroker::detail {

// The driver uses its arrays while the call runs, so it cannot be copied or moved.
class JitCall {
 public:
  // Leaves out options that the driver does not know. `driver_version` is what cuDriverGetVersion
  // returns.
  JitCall(const JitOptions& options, int driver_version);
  JitCall(const JitCall&) = delete;
  JitCall& operator=(const JitCall&) = delete;

  unsigned int count() const noexcept { return static_cast<unsigned int>(names_.size()); }
  CUjit_option* names() noexcept { return names_.data(); }
  void** values() noexcept { return values_.data(); }

  // The logs, without blanks at their end. Read them after the call.
  std::string error() const { return text(error_); }
  std::string info() const { return text(info_); }
  // Milliseconds that the driver spent in compiler and linker, or 0 when it does not tell.
  float wall_time() const noexcept;
  // The options that were asked for and left out. Usually empty.
  const std::string& left_out() const noexcept { return left_out_; }

 private:
  static std::string text(const std::vector<char>& log);
  void add(CUjit_option name, std::size_t number);
  void add(CUjit_option name, std::vector<char>& buffer);

  std::vector<char> error_, info_;
  std::vector<CUjit_option> names_;
  std::vector<void*> values_;
  std::size_t wall_time_ = 0;  // index of its value
  std::string left_out_;
};

// The log with, at each line number of PTX, the kernel it is in and, where the compiler left line
// information, the line of the source. `ptx` may be empty.
std::string explain_log(const std::string& log, std::string_view ptx, const std::string& name);

}  // namespace ctxbroker::detail
