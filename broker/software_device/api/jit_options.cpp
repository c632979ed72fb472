// SPDX-License-Identifier: Apache-2.0
#include "api/jit_options.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

// Numbers travel in the pointer-sized slots themselves.
std::size_t number_in(void* slot) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(slot));
}

}  // namespace

JitOptions::JitOptions(unsigned count, CUjit_option* options, void** values) {
  check_value(count == 0 || (options != nullptr && values != nullptr));
  for (unsigned i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.size = number_in(values[i]);
        error_.size_slot = &values[i];
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        info_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.size = number_in(values[i]);
        info_.size_slot = &values[i];
        break;
      case CU_JIT_WALL_TIME:
        wall_time_ = &values[i];
        break;
      case CU_JIT_LOG_VERBOSE:
        verbose_ = number_in(values[i]) != 0;
        break;
      default:  // how ptxas should optimise: nothing here does
        check_value(static_cast<int>(options[i]) >= 0 && options[i] < CU_JIT_NUM_OPTIONS);
    }
  }
  check_value(error_.buffer == nullptr || error_.size_slot != nullptr);
  check_value(info_.buffer == nullptr || info_.size_slot != nullptr);
}

void JitOptions::write(const Log& log, const std::string& text) {
  if (log.size_slot == nullptr) return;
  std::size_t written = 0;
  if (log.buffer != nullptr && log.size > 0) {
    std::size_t length = std::min(text.size(), log.size - 1);
    std::memcpy(log.buffer, text.data(), length);
    log.buffer[length] = 0;
    written = std::min(text.size(), log.size);  // as NVIDIA's driver counts
  }
  std::memcpy(log.size_slot, &written, sizeof written);
}

void JitOptions::write_error_log(const std::string& text) {
  write(error_, text);
}

void JitOptions::write_info_log(const std::string& text) {
  write(info_, text);
}

void JitOptions::write_wall_time(float milliseconds) {
  if (wall_time_ == nullptr) return;
  *wall_time_ = nullptr;
  std::memcpy(wall_time_, &milliseconds, sizeof milliseconds);
}

}  // namespace ctxbroker::software
