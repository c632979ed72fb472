// SPDX-License-Identifier: Apache-2.0
#include "api/jit.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "api/device.hpp"
#include "image/image.hpp"
#include "ptx/link.hpp"
#include "ptx/parser.hpp"

namespace ctxbroker::software {
namespace {

using Bytes = std::span<const std::byte>;

// The newest PTX that the reported driver, of CUDA 13.0, knows.
constexpr ptx::Version newest_ptx = {9, 0};

// The status with which NVIDIA's linker fails if a name is not defined, or is defined twice.
constexpr CUresult link_error_status = CUDA_ERROR_INVALID_SOURCE;

struct VersionLine {
  ptx::Version version = {};
  std::string text;      // "9.0"
  std::size_t line = 1;  // where ".version" stands
};

// The number after the first ".version" that no comment line hides.
VersionLine find_version(std::string_view ptx) {
  std::size_t line = 1;
  while (!ptx.empty()) {
    std::size_t end = std::min(ptx.find('\n'), ptx.size());
    std::string_view row = ptx.substr(0, end);
    row.remove_prefix(std::min(row.find_first_not_of(" \t\r"), row.size()));
    if (row.starts_with(".version")) {
      row.remove_prefix(std::string_view(".version").size());
      row.remove_prefix(std::min(row.find_first_not_of(" \t"), row.size()));
      VersionLine found;
      const std::string_view text = row.substr(0, row.find_first_of(" \t\r/"));
      constexpr std::size_t shown = 40;
      found.text = text.substr(0, shown);
      if (text.size() > shown) found.text += "...";
      found.version = ptx::version_of(text);
      found.line = line;
      return found;
    }
    ptx.remove_prefix(std::min(end + 1, ptx.size()));
    ++line;
  }
  return {};
}

bool is_text(Bytes image) {
  return image::format_of(image) == image::Format::text;
}

CUresult status_of(image::Reason reason, bool is_text) {
  switch (reason) {
    case image::Reason::invalid:
      return CUDA_ERROR_INVALID_IMAGE;
    case image::Reason::no_ptx:
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case image::Reason::newer_ptx:
      return is_text ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  return CUDA_ERROR_UNKNOWN;
}

std::string at_line(std::size_t line, const std::string& severity, const std::string& text) {
  return "ptxas application ptx input, line " + std::to_string(line) + "; " + severity + text;
}

std::string describe(const exec::Program& program) {
  std::string text;
  for (const exec::Kernel& kernel : program.kernels)
    text += "software device info: entry function '" + kernel.name +
            "': " + std::to_string(kernel.registers) + " registers, " +
            std::to_string(kernel.static_shared_bytes) + " bytes smem, " +
            std::to_string(kernel.local_bytes) + " bytes lmem, " +
            std::to_string(kernel.parameter_bytes) + " bytes parameters\n";
  return text;
}

JitFailure failure_of(const image::ImageError& error, bool is_text) {
  return {status_of(error.reason(), is_text), std::string("error   : ") + error.what()};
}

JitFailure failure_of(const ptx::SyntaxError& error) {
  return {CUDA_ERROR_INVALID_PTX, at_line(error.line(), "error   : ", error.what()) +
                                      "\nptxas fatal   : Ptx assembly aborted due to errors"};
}

// Runs `step` (returning a JitResult) and puts its failure into words.
template <typename Step>
JitResult result_of(const Step& step) {
  JitResult result;
  try {
    result.program = step();
    result.info_log = describe(*result.program);
  } catch (const JitFailure& failure) {
    result.status = failure.status;
    result.error_log = failure.log;
  }
  return result;
}

std::string extract(Bytes bytes) {
  try {
    return image::extract_ptx(bytes, compute_capability());
  } catch (const image::ImageError& error) {
    throw failure_of(error, is_text(bytes));
  }
}

Bytes whole_image(const void* image) {
  try {
    return {static_cast<const std::byte*>(image), image::image_size(image)};
  } catch (const image::ImageError& error) {
    throw failure_of(error, false);  // text always has a length
  }
}

bool is_linked(Bytes image) {
  const std::string_view bytes(reinterpret_cast<const char*>(image.data()), image.size());
  return bytes.starts_with(image::linked_magic);
}

std::vector<image::LinkedInput> read_linked(Bytes image) {
  try {
    return image::read_linked(image);
  } catch (const image::ImageError& error) {
    throw failure_of(error, false);
  }
}

std::shared_ptr<const exec::Program> compile(const ptx::Module& module, ptx::ModuleBudget& budget) {
  try {
    return exec::compile(module, budget);
  } catch (const ptx::SyntaxError& error) {
    throw failure_of(error);
  }
}

std::shared_ptr<const exec::Program> link_and_compile(
    const std::vector<image::LinkedInput>& inputs) {
  std::vector<ptx::LinkInput> modules;
  modules.reserve(inputs.size());
  ptx::ModuleBudget budget;
  for (const auto& [name, text] : inputs) modules.push_back({name, parse_ptx(text, budget)});
  try {
    return compile(ptx::link(std::move(modules)), budget);
  } catch (const ptx::LinkError& error) {
    throw JitFailure{link_error_status, error.what()};
  }
}

std::shared_ptr<const exec::Program> program_of(Bytes image) {
  if (is_linked(image)) return link_and_compile(read_linked(image));
  ptx::ModuleBudget budget;
  return compile(parse_ptx(extract(image), budget), budget);
}

constexpr const char* input_names[] = {"cubin", "PTX", "fatbin", "object", "library", "NVVM"};

}  // namespace

ptx::Module parse_ptx(const std::string& text, ptx::ModuleBudget& budget) {
  const VersionLine found = find_version(text);
  if (found.version > newest_ptx) {
    throw JitFailure{
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        at_line(found.line, "fatal   : ",
                "Unsupported .version " + found.text + "; the newest known is " +
                    std::to_string(newest_ptx.major) + "." + std::to_string(newest_ptx.minor))};
  }
  try {
    return ptx::parse(text, budget);
  } catch (const ptx::SyntaxError& error) {
    throw failure_of(error);
  }
}

void check_alone(const ptx::Module& module, ptx::ModuleBudget& budget) {
  compile(ptx::with_stand_ins(module), budget);
}

std::vector<image::LinkedInput> read_link_input(CUjitInputType type, const void* data,
                                                std::size_t bytes, const std::string& name) {
  const Bytes image(static_cast<const std::byte*>(data), bytes);
  const bool wants_text = type == CU_JIT_INPUT_PTX;
  if (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_CUBIN && type != CU_JIT_INPUT_FATBINARY) {
    throw JitFailure{CUDA_ERROR_NOT_SUPPORTED,
                     "error   : '" + name + "' is given as " + input_names[type] +
                         ", and the software device links PTX, fatbins with PTX in them, and what "
                         "it linked itself"};
  }
  if (is_linked(image) && !wants_text) return read_linked(image);
  if (wants_text != is_text(image)) {
    throw JitFailure{CUDA_ERROR_INVALID_IMAGE,
                     "error   : '" + name + "' is given as " + input_names[type] +
                         ", which it is not: its first bytes are none of its"};
  }
  return {{name, extract(image)}};
}

JitResult compile_linked(const std::vector<image::LinkedInput>& inputs) {
  return result_of([&] { return link_and_compile(inputs); });
}

JitResult compile_image(const void* image) {
  return result_of([&] { return program_of(whole_image(image)); });
}

JitResult compile_image(Bytes image) {
  return result_of([&] { return program_of(image); });
}

}  // namespace ctxbroker::software
