// The architecture that an image was built for. Internal to image/.
#pragma once

#include <optional>
#include <string>
#include <string_view>

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

}  // namespace ctxbroker::image
