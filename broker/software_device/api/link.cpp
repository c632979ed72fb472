// SPDX-License-Identifier: Apache-2.0
#include "api/link.hpp"

#include <chrono>
#include <utility>

#include "api/jit.hpp"
#include "api/logs.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {

void Link::add(CUjitInputType type, const void* data, std::size_t bytes, std::string name) {
  std::lock_guard lock(mutex_);
  check_value(!complete_);
  if (name.empty()) name = "<input " + std::to_string(inputs_.size() + 1) + ">";
  try {
    for (image::LinkedInput& input : read_link_input(type, data, bytes, name)) {
      modules_.push_back({input.name, parse_ptx(input.ptx, budget_)});
      check_alone(modules_.back().module, alone_);
      inputs_.push_back(std::move(input));
    }
    ptx::check_definitions(modules_);
  } catch (const JitFailure& failure) {
    fail_with(failure.status, failure.log);
  } catch (const ptx::LinkError& error) {
    fail_with(CUDA_ERROR_INVALID_SOURCE, std::string(error.what()) + "fatal   : merge_elf failed");
  }
}

const std::vector<std::byte>& Link::complete() {
  std::lock_guard lock(mutex_);
  check_value(!complete_);
  check_that(failure_ == CUDA_SUCCESS, failure_);
  auto begin = std::chrono::steady_clock::now();
  JitResult result = compile_linked(inputs_);
  std::chrono::duration<float, std::milli> time = std::chrono::steady_clock::now() - begin;
  options_.write_info_log(options_.verbose() ? result.info_log : std::string());
  options_.write_wall_time(time.count());
  if (result.status != CUDA_SUCCESS) fail_with(result.status, result.error_log);
  options_.write_error_log(error_log_);
  image_ = image::write_linked(inputs_);
  complete_ = true;
  return image_;
}

void Link::fail_with(CUresult status, const std::string& log) {
  error_log_ += log;
  if (!error_log_.ends_with('\n')) error_log_ += '\n';
  options_.write_error_log(error_log_);
  if (failure_ == CUDA_SUCCESS) failure_ = status;
  log_error("link: " + log);
  fail(status);
}

}  // namespace ctxbroker::software
