// SPDX-License-Identifier: Apache-2.0
#include "context/primary_context.hpp"

#include <cstdio>
#include <vector>

#include "context/ownership.hpp"

namespace ctxbroker::detail {

bool PrimaryContext::read_state(unsigned* flags, int* active) const noexcept {
  const auto get_state = device_.table().primary_get_state;
  return get_state != nullptr && get_state(device_.handle(), flags, active) == CUDA_SUCCESS;
}

bool PrimaryContext::is_active() const noexcept {
  unsigned flags = 0;
  int active = 0;
  return read_state(&flags, &active) && active != 0;
}

// The first user of a primary context chooses its flags. The broker needs none, so it accepts what
// it finds and logs it, because the host may not know who set them.
void PrimaryContext::report_users() const noexcept {
  unsigned flags = 0;
  int active = 0;
  if (retains_ != 0 || !read_state(&flags, &active) || (active == 0 && flags == 0)) return;
  char text[128];
  std::snprintf(
      text, sizeof text, "'s primary context %s 0x%x; it is taken as it is",
      active != 0 ? "is in use already, with flags" : "was given flags by others:", flags);
  device_.log(Severity::info, "device", text);
}

void PrimaryContext::take(CUcontext context, CUresult status) {
  detail::check(device_.table(), device_.report_status(status), "cuDevicePrimaryCtxRetain",
                device_.host_call(), [] { return "cannot retain the device's primary context"; });
  context_ = context;
  ++retains_;
}

std::uint64_t PrimaryContext::begin_generation(bool shielded) noexcept {
  const std::uint64_t generation = next_generation();
  shielded_generation_.store(shielded ? generation : 0, std::memory_order_release);
  generation_.store(generation, std::memory_order_release);
  return generation;
}

void PrimaryContext::release() noexcept {
  for (; retains_ > 0; --retains_) {
    const CUresult status = device_.table().primary_release(device_.handle());
    // Somebody else has a shield, or has released in the broker's place. Both are harmless.
    if (status == CUDA_ERROR_NOT_PERMITTED || status == CUDA_ERROR_INVALID_CONTEXT) continue;
    device_.report_failed_end("'s primary context could not be released", status);
  }
}

bool PrimaryContext::ask_if_current(std::uint64_t generation) noexcept {
  check();
  return this->generation() == generation;
}

void PrimaryContext::lose(std::uint64_t generation) noexcept {
  std::uint64_t shielded = generation;
  shielded_generation_.compare_exchange_strong(shielded, 0, std::memory_order_acq_rel);
  const bool first = generation_.compare_exchange_strong(generation, 0, std::memory_order_acq_rel);
  if (!first) return;
  ownership_changed();
  device_.log(Severity::error, "device",
              "'s primary context was destroyed; every shared and green lease on it is lost");
}

void PrimaryContext::check() noexcept {
  const std::uint64_t generation = this->generation();
  unsigned flags = 0;
  int active = 1;
  if (generation != 0 && read_state(&flags, &active) && active == 0) lose(generation);
}

CUresult ShieldContext::describe(MultiprocessorSplit& split, CUdevResourceDesc* description) {
  std::vector<std::size_t> least;
  if (split.groups() > 0) least.push_back(0);
  return split.describe(least, description);
}

void ShieldContext::take(CUgreenCtx green, CUresult status, bool offered) noexcept {
  green_ = green;
  try {
    reason_.clear();
    if (device_.report_status(status) == CUDA_SUCCESS) return;
    reason_ = std::string(offered ? "the shield's green context cannot be made"
                                  : "the driver offers no green contexts") +
              ": " + status_text(device_.table(), status);
    // An old driver cannot have a shield, which is no reason for a warning on every start.
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
