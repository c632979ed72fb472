// SPDX-License-Identifier: Apache-2.0
// Reads cubins, which are ELF files with machine code for NVIDIA GPUs. Internal to image/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ctxbroker/kernel_image.hpp"
#include "image/bytes.hpp"
#include "image/ptx_text.hpp"

namespace ctxbroker::image {

struct Cubin {
  Target target = {};
  bool is_64_bit = true;
  bool is_relocatable = false;
  std::vector<std::string> kernels = {};
  std::vector<ImageVariable> variables = {};
};

// Returns the size of the file: the end of the later of its two header tables, because linkers
// write them last. `image` holds at least the header (elf_header_bytes of elf.hpp). Throws
// ImageError.
std::uint64_t cubin_size(Bytes image);

// Reads only the architecture, from the header. Throws ImageError when the file is not for NVIDIA
// GPUs.
Target read_cubin_target(Bytes image);

// Reads the kernels and variables of a cubin. Throws ImageError.
Cubin read_cubin(Bytes image, Allowances& allowances);

}  // namespace ctxbroker::image
