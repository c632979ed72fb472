// Finds what PTX text declares by scanning its words. The scan does not parse or check anything
// else. Internal to image/.
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
  std::vector<ImageVariable> variables =
      {};  // defined in this text; 0 bytes when the text states no size
};

PtxContent scan_ptx(std::string_view text);

}  // namespace ctxbroker::image
