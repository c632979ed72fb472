// SPDX-License-Identifier: Apache-2.0
#include "module/image_error.hpp"

#include <algorithm>
#include <string_view>

#include "driver/driver_error.hpp"

namespace ctxbroker::detail {
namespace {

std::string cuda_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string capability_text(int capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

// The versions of the PTX in it, each once: "9.1", "8.0 and 9.1".
std::string ptx_in(const KernelImage& about) {
  std::vector<std::string> versions;
  for (const ImageEntry& entry : about.entries) {
    const bool known =
        std::find(versions.begin(), versions.end(), entry.ptx_version) != versions.end();
    if (!entry.ptx_version.empty() && !known) versions.push_back(entry.ptx_version);
  }
  std::string text;
  for (const std::string& version : versions) text += (text.empty() ? "" : " and ") + version;
  return text;
}

struct Device {
  std::string text;  // "device 0 (NVIDIA H200, compute capability 9.0)"
  int capability = 0;
};

Device device_of(const Lease& lease) {
  const DeviceInfo& info = lease.driver().devices[static_cast<std::size_t>(lease.device_ordinal())];
  const int capability = 10 * info.compute_major + info.compute_minor;
  return {"device " + std::to_string(info.ordinal) + " (" + info.name + ", compute capability " +
              capability_text(capability) + ")",
          capability};
}

bool needs_linking(const KernelImage& about) {
  return std::any_of(about.entries.begin(), about.entries.end(),
                     [](const ImageEntry& entry) { return entry.is_relocatable; });
}

std::string not_for_this_device(const Device& device, const KernelImage& about) {
  const std::string number = std::to_string(device.capability);
  return "it has no kernel image for " + device.text + "; it is " + summary(about) +
         "; build it with -gencode arch=compute_" + number + ",code=compute_" + number +
         " (or lower) as well: that is PTX, which newer devices and the software device run too";
}

std::string ptx_too_new(const Driver& driver, const StoredImage* image) {
  const std::string ours = image != nullptr && image->about ? ptx_in(*image->about) : std::string();
  return "its PTX " + (ours.empty() ? "is" : "(version " + ours + ") is") +
         " too new for the driver, which is of CUDA " + cuda_text(driver.info.version) +
         "; update the driver, or build the module with an older toolkit";
}

// Why the driver took what the reader of images does not know for an image it cannot load; empty
// for reasons that have nothing to do with that.
std::string reason_of_unknown(CUresult status) {
  switch (status) {
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_SOURCE:
      return "it is neither PTX nor a cubin nor a fatbin, or it is corrupt; build it again";
    default:
      return {};
  }
}

std::string reason_of_known(const Device& device, const StoredImage& image, CUresult status) {
  const bool wrong_device = !runs_on(*image.about, device.capability);
  switch (status) {
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      return not_for_this_device(device, *image.about);
    case CUDA_ERROR_INVALID_PTX:
      return wrong_device ? not_for_this_device(device, *image.about)
                          : "the driver's compiler refuses its PTX";
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_SOURCE:
      if (wrong_device) return not_for_this_device(device, *image.about);
      if (needs_linking(*image.about)) {
        return "it was compiled for linking (nvcc -rdc=true): give it to the module as one of its "
               "parts";
      }
      return "the driver finds it corrupt (" + summary(*image.about) + "); build it again";
    default:
      return {};
  }
}

std::string reason(const Lease& lease, const StoredImage* image, CUresult status,
                   std::string_view call) {
  const Device device = device_of(lease);
  const bool is_known = image != nullptr && image->about;
  if (status == CUDA_ERROR_UNSUPPORTED_PTX_VERSION) return ptx_too_new(lease.driver(), image);
  if (status == CUDA_ERROR_JIT_COMPILER_NOT_FOUND) {
    return "the driver's PTX compiler is not installed (libnvidia-ptxjitcompiler.so); install the "
           "whole driver, or build the module with machine code for " +
           device.text;
  }
  if (image != nullptr) {
    std::string why =
        is_known ? reason_of_known(device, *image, status) : reason_of_unknown(status);
    if (!why.empty()) return why;
  }
  // What is wrong with a link is in the log; the statuses for it are vague.
  const bool links = call.starts_with("cuLink") && status != CUDA_ERROR_OUT_OF_MEMORY;
  return links && !loses_context(status) ? "the driver cannot link it" : "";
}

}  // namespace

Error image_error(const Lease& lease, const StoredImage* image, const ImageFailure& failure) {
  const std::string why = reason(lease, image, failure.status, failure.call);
  const Error plain = driver_error(lease.table(), failure.status, failure.call,
                                   failure.who + " cannot be loaded", lease.owner());
  const std::string& raw = failure.error_log.empty() ? failure.info_log : failure.error_log;
  const std::string log =
      explain_log(raw, image == nullptr ? std::string_view() : image->text(), failure.who);
  return {why.empty() ? plain.kind() : ErrorKind::kernel_image,
          (why.empty() ? plain.message() : failure.who + " cannot be loaded: " + why) +
              (log.empty() ? "; the JIT log is empty" : "; JIT log: " + log),
          plain.origin()};
}

Error not_loaded(const Lease& lease, const std::string& what, const char* call) {
  return {ErrorKind::lease_unavailable,
          what + " cannot be loaded: " + lease.family()->why_not_made() +
              ", and the driver loads no code into that memory before the work ends; try again "
              "later, or ask for a private lease, which does not wait for it",
          {.call = call,
           .status = CUDA_ERROR_NOT_READY,
           .status_name = status_name(lease.table(), CUDA_ERROR_NOT_READY),
           .device = lease.device_ordinal(),
           .tenant = lease.tenant().name}};
}

}  // namespace ctxbroker::detail
