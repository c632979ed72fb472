// What PTX text declares, found by its words alone: no full parser, no judgement of what is in
// between. Internal to image/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/kernel_image.hpp"

namespace ctxbroker::image {

struct PtxContent {
  std::string version = {};  // "9.0"
  bool is_64_bit = false;
  std::vector<std::string> kernels = {};
  std::vector<ImageVariable> variables = {};  // defined here; 0 bytes where no size is written
};

PtxContent scan_ptx(std::string_view text);

}  // namespace ctxbroker::image
