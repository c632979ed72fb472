// Links several images into one with the driver's linker.
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

// Links the parts in their order for the lease's device. The lease's context must be current. `who`
// names the module in error texts. Throws Error: kernel_image, with the part's name and the log;
// driver_call.
std::shared_ptr<const StoredImage> link_parts(Lease& lease, const std::vector<LinkPart>& parts,
                                              const JitOptions& options, const std::string& who);

}  // namespace ctxbroker::detail
