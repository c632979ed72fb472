// SPDX-License-Identifier: Apache-2.0
#include "api/load_program.hpp"

#include <chrono>
#include <string>

#include "api/jit.hpp"
#include "api/logs.hpp"
#include "api/status.hpp"
#include "limits/limits.hpp"
#include "observe/regular_file.hpp"

namespace ctxbroker::software {

std::shared_ptr<const exec::Program> load_program(const void* image, JitOptions& options) {
  auto begin = std::chrono::steady_clock::now();
  JitResult result = compile_image(image);
  std::chrono::duration<float, std::milli> time = std::chrono::steady_clock::now() - begin;
  options.write_error_log(result.error_log);
  options.write_info_log(options.verbose() ? result.info_log : std::string());
  options.write_wall_time(time.count());
  if (result.status != CUDA_SUCCESS) {
    log_error("module: " + result.error_log);
    fail(result.status);
  }
  return result.program;
}

std::vector<char> read_image_file(const char* name) {
  const ctxbroker::detail::FileReading reading =
      ctxbroker::detail::read_regular_file(name, limits::image_bytes.most);
  if (reading.is_too_large) {
    log_error("module: \"" + std::string(name) + "\" has " + limits::beyond(limits::image_bytes));
    fail(CUDA_ERROR_INVALID_IMAGE);
  }
  if (!reading.trouble.empty()) log_error("\"" + std::string(name) + "\" " + reading.trouble);
  check_that(reading.trouble.empty(), CUDA_ERROR_FILE_NOT_FOUND);
  std::vector<char> bytes(reading.bytes.begin(), reading.bytes.end());
  bytes.push_back(0);
  return bytes;
}

}  // namespace ctxbroker::software
