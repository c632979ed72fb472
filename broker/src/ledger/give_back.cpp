// SPDX-License-Identifier: Apache-2.0
#include "ledger/give_back.hpp"

#include <array>
#include <atomic>
#include <new>
#include <utility>

#include "driver/driver_error.hpp"

namespace ctxbroker::detail {
namespace {

using Fate = LeftThing::Fate;

CUresult end_made_in_lease(const Holding& holding) noexcept {
  const DriverTable& driver = holding.lease->table();
  switch (holding.kind) {
    case Kind::stream:
      return driver.stream_destroy(reinterpret_cast<CUstream>(holding.handle));
    case Kind::mapping:
      return end_shared_memory(driver, {holding.handle, holding.extent});
    case Kind::ipc_memory:
      return driver.ipc_close_mem_handle(holding.handle);
    default:
      return holding.store != nullptr ? holding.store->give_back(holding.handle, size_of(holding))
                                      : driver.mem_free(holding.handle);
  }
}

// A refusal that leaves the thing where it is. The driver does not know what it has ended, perhaps
// in part, when it refused before.
bool stays(const Holding& holding, CUresult status) noexcept {
  if (!is_refusal(status) || loses_context(status)) return false;
  return !holding.refused ||
         (status != CUDA_ERROR_INVALID_VALUE && status != CUDA_ERROR_INVALID_HANDLE);
}

constinit std::atomic<bool> any_given_up{false};

// It is counted still. Without memory for its entry, it is so until the process ends.
void put_back(Holding holding, bool is_left) noexcept {
  holding.refused = true;
  holding.given_up = is_left;
  try {
    ledger().add(std::move(holding));
    if (is_left) any_given_up.store(true, std::memory_order_release);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): see above
  }
}

}  // namespace

std::optional<CUresult> end_in_lease(const Holding& holding, bool is_left) noexcept {
  try {
    const auto after = [holding, is_left](CUresult status) {
      if (stays(holding, status)) {
        put_back(holding, is_left);
      } else {
        stop_counting(holding);
      }
      if (!holding.given_up) {  // said when it was
        holding.lease->report_failed_end(to_string(holding.kind), status);
      }
    };
    return holding.lease->give_back(ending_of(
        holding, [holding] { return end_made_in_lease(holding); }, after));
  } catch (const std::bad_alloc&) {
    return std::nullopt;  // it stays, and counted
  }
}

namespace {

LeftThing end_left_in_lease(const Holding& holding) noexcept {
  if (!ledger().remove(holding.kind, holding.handle, holding.holder)) return {Fate::not_counted};
  const auto status = end_in_lease(holding, true);
  if (!status) return {Fate::put_off};
  return {stays(holding, *status) ? Fate::refused : Fate::ended, *status};
}

// Returns whether it has ended with its lease, because it lived in a context that ended with that.
bool ends_with_lease(const Holding& holding) noexcept {
  const Home home = home_of(holding);
  return holding.lease->is_over() &&
         (home == Home::context ||
          (home == Home::memory && holding.lease->kind() == LeaseKind::private_own));
}

}  // namespace

bool is_refusal(CUresult status) noexcept {
  return status != CUDA_SUCCESS && status != CUDA_ERROR_CONTEXT_IS_DESTROYED &&
         status != Lease::gone;
}

std::optional<Released> release(const Holder& holder, Kind kind, std::uint64_t handle) noexcept {
  const auto held = ledger().remove(kind, handle, holder);
  if (!held) return std::nullopt;
  const CUresult status = end_in_lease(*held, false).value_or(CUDA_SUCCESS);
  return Released{status, held->bytes, stays(*held, status)};
}

void end_given_up(const Recorder* recorder, bool is_last) noexcept {
  if (!any_given_up.exchange(false, std::memory_order_acq_rel)) return;
  try {
    for (const Holding& one : ledger().given_up()) {
      if (one.lease->tenant().recorder.get() != recorder) {
        any_given_up.store(true, std::memory_order_release);
        continue;
      }
      if (!ledger().remove(one.kind, one.handle, one.holder)) continue;
      if (ends_with_lease(one)) {
        stop_counting(one);
        continue;
      }
      const auto status = end_in_lease(one, true);
      if (!is_last || !status || !stays(one, *status)) continue;
      if (ledger().remove(one.kind, one.handle, one.holder)) stop_counting(one);
      one.lease->report_failed_end(to_string(one.kind), *status);
    }
  } catch (const std::bad_alloc&) {
    any_given_up.store(true, std::memory_order_release);
  }
}

CUresult give_back(const Holder& holder, const Reason& reason, const EndLeftThing& end) {
  std::array<std::array<std::size_t, kind_count>, LeftThing::fate_count>
      counts{};  // by fate and kind
  CUresult failure = CUDA_SUCCESS;
  for (const Holding& holding : ledger().held_by(holder)) {
    const LeftThing left = end(holding);
    ++counts[static_cast<std::size_t>(left.fate)][static_cast<std::size_t>(holding.kind)];
    if (failure == CUDA_SUCCESS && is_refusal(left.status)) failure = left.status;
  }
  if (*reason.left == 0) return failure;
  const auto log = [&](Fate fate, Severity severity, const std::string& begin) {
    std::string text;  // "2 x stream, 1 x event"
    for (std::size_t kind = 0; kind < kind_count; ++kind) {
      const std::size_t count = counts[static_cast<std::size_t>(fate)][kind];
      if (count == 0) continue;
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " x " +
              to_string(static_cast<Kind>(kind));
    }
    if (!text.empty()) reason.tenant.log(severity, "ledger", begin + ": " + text);
  };
  const std::string what = std::string("what ") + reason.left;
  log(Fate::ended, Severity::warning, "gave back " + what);
  log(Fate::refused, Severity::warning, "the driver refused to end, of " + what);
  log(Fate::put_off, Severity::warning, "put off until work that hangs ends, of " + what);
  log(Fate::of_code, Severity::info, "stays with the tenant's code, which stays in the process");
  if (failure != CUDA_SUCCESS) {
    reason.tenant.log(Severity::warning, "ledger",
                      std::string("something that ") + reason.left +
                          " could not be given back: " + status_text(reason.driver, failure));
  }
  return failure;
}

CUresult give_back(const Holder& holder, const Reason& reason) {
  return give_back(holder, reason, end_left_in_lease);
}

}  // namespace ctxbroker::detail
