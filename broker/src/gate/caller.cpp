#include "gate/caller.hpp"

#include <unwind.h>

#include <cstdint>

#include "context/guard.hpp"
#include "gate/code_map.hpp"

namespace ctxbroker::detail {
namespace {

constexpr int most_frames = 64;  // looked at, from the call outwards

// Whose thread this is, once known. Nothing here has a destructor: plug-ins call until a thread has
// ended.
constinit thread_local GatedTenant* thread_owner = nullptr;

struct Walk {
  int frames = 0;
  GatedTenant* innermost = nullptr;  // the first tenant met
  GatedTenant* starter = nullptr;    // the last one, when only the thread's start is outside of it
};

_Unwind_Reason_Code visit(_Unwind_Context* context, void* state) {
  auto& walk = *static_cast<Walk*>(state);
  if (++walk.frames > most_frames) return _URC_END_OF_STACK;
  const auto address = static_cast<std::uintptr_t>(_Unwind_GetIP(context));
  if (address == 0) return _URC_END_OF_STACK;
  // A return address may be the first byte behind a function that does not return.
  const CodeOwner owner = owner_of_code(reinterpret_cast<const void*>(address - 1));
  if (owner.tenant != nullptr) {
    if (walk.innermost == nullptr) walk.innermost = owner.tenant;
    walk.starter = owner.tenant;
  } else if (!owner.starts_threads) {
    walk.starter = nullptr;
  }
  return _URC_NO_REASON;
}

}  // namespace

Caller calling() noexcept {
  if (!any_gated_tenant()) return {};
  const FrameOwner frame = frame_owner();
  if (frame.decided) {
    GatedTenant* tenant =
        frame.tenant != nullptr ? frame.tenant->gated.load(std::memory_order_acquire) : nullptr;
    return {tenant, tenant != nullptr};
  }
  if (thread_owner != nullptr) return {thread_owner, false};
  Walk walk;
  _Unwind_Backtrace(visit, &walk);
  if (walk.frames <= most_frames) thread_owner = walk.starter;
  return {walk.innermost, false};
}

}  // namespace ctxbroker::detail
