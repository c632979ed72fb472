// SPDX-License-Identifier: Apache-2.0
// A module as the plug-in's descriptor gives it: what its code is made of, and how it wants it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ctxbroker::detail {

class ImageMaker;

// Zero leaves a member to the driver.
struct JitOptions {
  unsigned int max_registers = 0;
  unsigned int optimisation = 0;  // the level, from 1: CTXB_JIT_LEVEL
  unsigned int target = 0;        // as CUjit_target has it
  unsigned int loader_threads = 0;
  std::size_t log_bytes = 0;
  bool debug_info = false;
  bool line_info = false;
  bool verbose = false;

  bool operator==(const JitOptions&) const = default;
};

// Data borrowed from the plug-in's library, or a file.
struct ModulePart {
  std::string name = {};
  const std::byte* data = nullptr;
  std::size_t size = 0;
  std::filesystem::path file = {};
  std::uint32_t checksum = 0;  // of the data; 0: none
};

struct CudaSource {
  std::string name = {};
  std::string text = {};
  std::vector<std::string> options = {};
};

// The data are borrowed: static data of the plug-in's library.
struct ModuleImage {
  std::string name = {};
  const std::byte* data = nullptr;
  std::size_t size = 0;
  std::uint32_t checksum = 0;                  // of the data; 0: none
  std::vector<std::string> kernels = {};       // those that the descriptor promises; may be empty
  std::vector<ModulePart> parts = {};          // to be linked
  std::optional<CudaSource> source = {};       // to be compiled
  std::filesystem::path file = {};             // counts as long as it is there
  std::vector<std::string> file_options = {};  // the compiler's, for a .cu file
  JitOptions jit = {};
  bool on_first_use = false;
  bool development = false;                // `file` is watched
  std::shared_ptr<ImageMaker> maker = {};  // makes what the driver loads, once; see image_maker.hpp
};

}  // namespace ctxbroker::detail
