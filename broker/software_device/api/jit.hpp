// SPDX-License-Identifier: Apache-2.0
// From an image to a program, with the errors in the words of a driver.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/cuda_api.hpp"
#include "exec/program.hpp"
#include "image/linked.hpp"
#include "ptx/budget.hpp"
#include "ptx/module.hpp"

namespace ctxbroker::software {

struct JitResult {
  CUresult status = CUDA_SUCCESS;
  std::shared_ptr<const exec::Program> program;  // null unless success
  std::string error_log;  // "ptxas application ptx input, line 5; error   : ..."
  std::string info_log;   // one line per kernel
};

// `image` is what cuModuleLoadData is given; its length is read from itself.
JitResult compile_image(const void* image);
// The same for an image whose length is known: its header is not believed to go on behind it.
JitResult compile_image(std::span<const std::byte> image);

// The steps of it, for the linker. They throw JitFailure.
struct JitFailure {
  CUresult status;
  std::string log;
};

// What the linker is given: a fatbin's or cubin's bytes, or text. An image that was linked before
// gives all that went into it. `name` is what messages call it.
std::vector<image::LinkedInput> read_link_input(CUjitInputType type, const void* data,
                                                std::size_t bytes, const std::string& name);
ptx::Module parse_ptx(const std::string& text, ptx::ModuleBudget& budget);
// Throws JitFailure for a mistake in the kernels of one input before it is linked. Spends the
// steps, the analysis and the memory of `budget`, which the link state keeps for the code of all
// its inputs. Their texts have spent another one, in parse_ptx.
void check_alone(const ptx::Module& module, ptx::ModuleBudget& budget);
JitResult compile_linked(const std::vector<image::LinkedInput>& inputs);

}  // namespace ctxbroker::software
