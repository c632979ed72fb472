// SPDX-License-Identifier: Apache-2.0
#include "ledger/give_back.hpp"

#include <array>
#include <new>

namespace ctxbroker::detail {
namespace {

using Fate = LeftThing::Fate;

bool is_refusal(CUresult status) noexcept {
  return status != CUDA_SUCCESS && status != CUDA_ERROR_CONTEXT_IS_DESTROYED &&
         status != Lease::gone;
}

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
      return driver.mem_free(holding.handle);
  }
}

LeftThing end_left_in_lease(const Holding& holding) noexcept {
  if (!ledger().remove(holding.kind, holding.handle, holding.holder)) return {Fate::not_counted};
  const auto status = end_in_lease(holding);
  return {status ? Fate::ended : Fate::put_off, status.value_or(CUDA_SUCCESS)};
}

}  // namespace

std::optional<CUresult> end_in_lease(const Holding& holding) noexcept {
  try {
    return holding.lease->give_back(
        {home_of(holding), to_string(holding.kind), holding.bytes, waits_for_work(holding.kind),
         false, [holding] { return end_made_in_lease(holding); },
         [holding](CUresult status) {
           stop_counting(holding);
           holding.lease->report_failed_end(to_string(holding.kind), status);
         }});
  } catch (const std::bad_alloc&) {
    return std::nullopt;  // it stays, and counted
  }
}

std::optional<Released> release(const Holder& holder, Kind kind, std::uint64_t handle) noexcept {
  const auto known = ledger().find(kind, handle, holder);
  if (!known || known->given_up) return std::nullopt;
  auto held = ledger().remove(kind, handle, holder);
  if (!held) return std::nullopt;
  const Released released{end_in_lease(*held).value_or(CUDA_SUCCESS), held->bytes};
  if (!is_refusal(released.status)) return released;
  held->given_up = true;
  held->bytes = 0;
  try {
    count(*held);
    ledger().add(*held);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the context's end frees it
  }
  return released;
}

CUresult give_back(const Holder& holder, const Reason& reason, const EndLeftThing& end) {
  std::array<std::array<std::size_t, kind_count>, 4> counts{};  // by fate and kind
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
