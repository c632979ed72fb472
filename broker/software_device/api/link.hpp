// SPDX-License-Identifier: Apache-2.0
// cuLink*: several images made one. A link state belongs to no context.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "api/cuda_api.hpp"
#include "api/jit_options.hpp"
#include "image/linked.hpp"
#include "ptx/link.hpp"

namespace ctxbroker::software {

class Link {
 public:
  explicit Link(const JitOptions& options) : options_(options) {}

  // Throws the status, and writes the options' error log, when the data is not what `type` says or
  // defines what an earlier input has defined. An empty name becomes "<input N>".
  void add(CUjitInputType type, const void* data, std::size_t bytes, std::string name);

  // Links, and gives the image, which lives as long as the object. Throws the status, as above.
  const std::vector<std::byte>& complete();

  CUlinkState handle = nullptr;

 private:
  [[noreturn]] void fail_with(CUresult status, const std::string& log);

  std::mutex mutex_;
  JitOptions options_;  // the caller keeps its arrays as long as the object
  std::vector<image::LinkedInput> inputs_;
  ptx::ModuleBudget budget_;             // for parsing all inputs
  ptx::ModuleBudget alone_;              // for compiling each input alone, all together
  std::vector<ptx::LinkInput> modules_;  // the same, parsed
  std::string error_log_;                // of all calls
  bool complete_ = false;
  CUresult failure_ = CUDA_SUCCESS;  // the first of an input: nothing complete comes of the others
  std::vector<std::byte> image_;
};

}  // namespace ctxbroker::software
