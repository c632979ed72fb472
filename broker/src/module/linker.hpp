// Several images linked into one, by the driver.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "context/lease.hpp"
#include "module/module_image.hpp"
#include "module/stored_image.hpp"

namespace ctxbroker::detail {

struct LinkPart {
  std::string name;
  std::span<const std::byte> bytes;
};

// Linked in their order for the lease's device, whose context is current. `who` names the module.
// Throws Error: kernel_image, with the part's name and the log; driver_call.
std::shared_ptr<const StoredImage> link_parts(Lease& lease, const std::vector<LinkPart>& parts,
                                              const JitOptions& options, const std::string& who);

}  // namespace ctxbroker::detail
