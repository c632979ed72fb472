// SPDX-License-Identifier: Apache-2.0
#include "api/load_program.hpp"

#include <chrono>
#include <span>
#include <utility>

#include "api/jit.hpp"
#include "api/logs.hpp"
#include "api/status.hpp"
#include "image/image.hpp"
#include "limits/limits.hpp"
#include "observe/regular_file.hpp"

namespace ctxbroker::software {

namespace {

template <typename Image>
std::shared_ptr<const exec::Program> load(const Image& image, JitOptions& options) {
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

}  // namespace

std::shared_ptr<const exec::Program> load_program(const void* image, JitOptions& options) {
  return load(image, options);
}

std::shared_ptr<const exec::Program> load_program(const std::string& file, JitOptions& options) {
  return load(std::as_bytes(std::span(file.data(), file.size())), options);
}

std::string read_image_file(const char* name) {
  ctxbroker::detail::FileReading reading =
      ctxbroker::detail::read_regular_file(name, limits::image_bytes.most);
  if (reading.is_too_large) {
    log_error("module: \"" + std::string(name) + "\" has " + limits::beyond(limits::image_bytes));
    fail(CUDA_ERROR_INVALID_IMAGE);
  }
  if (!reading.trouble.empty()) log_error("\"" + std::string(name) + "\" " + reading.trouble);
  check_that(reading.trouble.empty(), CUDA_ERROR_FILE_NOT_FOUND);
  if (image::format_of(reading.bytes.data(), reading.bytes.size()) == image::Format::wrapper) {
    log_error("module: \"" + std::string(name) +
              "\" holds a fatbin's wrapper, which only points to a fatbin in memory");
    fail(CUDA_ERROR_INVALID_IMAGE);
  }
  return std::move(reading.bytes);
}

}  // namespace ctxbroker::software
