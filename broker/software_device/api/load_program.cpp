// SPDX-License-Identifier: Apache-2.0
#include "api/load_program.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "api/jit.hpp"
#include "api/logs.hpp"
#include "api/status.hpp"
#include "limits/limits.hpp"

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
  std::error_code error;
  require(std::filesystem::is_regular_file(name, error), CUDA_ERROR_FILE_NOT_FOUND);
  std::ifstream file(name, std::ios::binary);
  require(file.is_open(), CUDA_ERROR_FILE_NOT_FOUND);
  if (std::filesystem::file_size(name, error) > limits::image_bytes.most || error) {
    log_error("module: \"" + std::string(name) + "\" has " + limits::beyond(limits::image_bytes));
    fail(CUDA_ERROR_INVALID_IMAGE);
  }
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  bytes.push_back(0);
  return bytes;
}

}  // namespace ctxbroker::software
