#include "context/shield.hpp"

#include <vector>

#include "context/lease_context.hpp"

namespace ctxbroker::detail {

void ShieldContext::raise(MultiprocessorSplit& split) noexcept {
  green_ = nullptr;
  try {
    CUresult status = split.status();
    const char* what = "the driver offers no green contexts";
    if (status == CUDA_SUCCESS) {
      what = "the shield's green context cannot be made";
      // The smallest partition suffices, because nothing runs in it.
      CUdevResourceDesc description = nullptr;
      std::vector<std::size_t> least;
      if (split.groups() > 0) least.push_back(0);
      status = split.describe(least, &description);
      CUcontext unused = nullptr;
      if (status == CUDA_SUCCESS) status = create_green(device_, description, &green_, &unused);
    }
    reason_.clear();
    if (device_.report_status(status) == CUDA_SUCCESS) return;
    reason_ = std::string(what) + ": " + status_text(device_.table(), status);
    // An old driver cannot have a shield, which is no reason for a warning on every start.
    const bool offered = split.status() == CUDA_SUCCESS;
    device_.log(offered ? Severity::warning : Severity::info, "shield",
                " has no shield (" + reason_ +
                    "): a plug-in that resets the device ends its neighbours' work");
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for the words
  }
}

void ShieldContext::take_down() noexcept {
  if (green_ == nullptr) return;
  device_.report_failed_end("'s shield could not be taken down",
                            device_.table().green_destroy(green_));
  green_ = nullptr;
}

}  // namespace ctxbroker::detail
