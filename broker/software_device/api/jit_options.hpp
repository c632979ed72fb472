// SPDX-License-Identifier: Apache-2.0
// The options of cuModuleLoadDataEx: where the logs go.
#pragma once

#include <string>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

class JitOptions {
 public:
  // Checks names and pairs (CUDA_ERROR_INVALID_VALUE). The arrays stay the caller's and must
  // outlive the object.
  JitOptions(unsigned count, CUjit_option* options, void** values);

  // Fill the caller's buffers, cut to their size, and the sizes with what was written.
  void write_error_log(const std::string& text);
  void write_info_log(const std::string& text);
  void write_wall_time(float milliseconds);

  bool verbose() const noexcept { return verbose_; }

 private:
  struct Log {
    char* buffer = nullptr;
    std::size_t size = 0;  // bytes
    void** size_slot = nullptr;
  };
  static void write(const Log& log, const std::string& text);

  Log error_, info_;
  void** wall_time_ = nullptr;
  bool verbose_ = false;
};

}  // namespace ctxbroker::software
