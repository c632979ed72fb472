// SPDX-License-Identifier: Apache-2.0
// Finds what PTX text is built for and what it declares. Internal to image/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/kernel_image.hpp"
#include "image/bytes.hpp"

namespace ctxbroker::image {

// "sm_90a": capability 90, variant 'a'.
struct Target {
  int capability = 0;   // 10 * major + minor
  char variant = '\0';  // 'a': only this capability; 'f': this family, upwards; 0: all above
};

// Returns the target that PTX text declares in its first lines, or nothing when the text is not
// PTX.
std::optional<Target> find_target(std::string_view text);

// Returns whether PTX for `target` runs on a device of this compute capability.
bool runs_on(Target target, int compute) noexcept;

std::string to_string(Target target);

struct PtxContent {
  std::string version = {};  // "9.0"
  bool is_64_bit = false;
  std::vector<std::string> kernels = {};
  std::vector<ImageVariable> variables =
      {};  // defined in this text; 0 bytes when the text states no size
};

// Scans the words of the text, and neither parses nor checks anything else.
PtxContent scan_ptx(std::string_view text, Allowances& allowances);

}  // namespace ctxbroker::image
