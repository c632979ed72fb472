// SPDX-License-Identifier: Apache-2.0
#include "gate/primary_watch.hpp"

#include <unwind.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <system_error>
#include <vector>

#include "gate/common_libraries.hpp"
#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {
namespace {

// There is one object for the process, which has one gate.
struct Watches {
  std::shared_mutex mutex;
  std::vector<PrimaryWatch*> all;
  std::atomic<bool> any{false};

  static Watches& one() {
    static auto* const watches = new Watches;  // libraries call until the process ends
    return *watches;
  }
};

template <typename Tell>
void tell_watches(Tell&& tell) noexcept {
  Watches& watches = Watches::one();
  if (!watches.any.load(std::memory_order_acquire)) return;
  const std::shared_lock lock(watches.mutex);
  for (PrimaryWatch* const watch : watches.all) tell(*watch);
}

constexpr int most_callers = 64;

struct Frames {
  std::array<const void*, most_callers> addresses{};
  std::size_t count = 0;
};

_Unwind_Reason_Code note_caller(_Unwind_Context* context, void* state) {
  auto& frames = *static_cast<Frames*>(state);
  const auto address = static_cast<std::uintptr_t>(_Unwind_GetIP(context));
  if (address == 0 || frames.count == frames.addresses.size()) return _URC_END_OF_STACK;
  // A return address may be the first byte behind a function that does not return.
  frames.addresses[frames.count++] = reinterpret_cast<const void*>(address - 1);
  return _URC_NO_REASON;
}

const LoadedObject* object_at(const std::vector<LoadedObject>& objects, const void* address) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  const auto found = std::find_if(objects.begin(), objects.end(),
                                  [&](const LoadedObject& one) { return holds(one, place); });
  return found != objects.end() ? &*found : nullptr;
}

// Libraries that call the driver for others: NVIDIA's runtime library, what binds languages to C,
// and this one.
bool passes_calls_on(const LoadedObject& object) {
  constexpr std::string_view names[] = {"libcudart", "libffi", "libctxbroker"};
  return calls_for_others(object) || object.name.starts_with("ctxbroker_") ||
         std::any_of(std::begin(names), std::end(names),
                     [&](std::string_view name) { return object.name.starts_with(name); });
}

std::string file_of(const LoadedObject& object) {
  if (!object.path.empty()) return object.path;
  std::error_code error;  // the program, which the loader has no path of
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "the program" : program.string();
}

}  // namespace

void watch_primaries(PrimaryWatch& watch) {
  Watches& watches = Watches::one();
  const std::unique_lock lock(watches.mutex);
  watches.all.push_back(&watch);
  watches.any.store(true, std::memory_order_release);
}

void stop_watching_primaries(const PrimaryWatch& watch) noexcept {
  Watches& watches = Watches::one();
  if (!watches.any.load(std::memory_order_acquire)) return;
  const std::unique_lock lock(watches.mutex);
  std::erase(watches.all, &watch);
  watches.any.store(!watches.all.empty(), std::memory_order_release);
}

void report_retained(CUdevice device) noexcept {
  tell_watches([&](PrimaryWatch& watch) { watch.primary_retained(device); });
}

void report_kept(const char* function, CUdevice device, const void* from) noexcept {
  tell_watches([&](PrimaryWatch& watch) { watch.primary_kept(function, device, from); });
}

std::string library_that_called(const void* from) {
  Frames frames;
  _Unwind_Backtrace(note_caller, &frames);
  const std::vector<LoadedObject> objects = loaded_objects();
  for (std::size_t i = 0; i < frames.count; ++i) {
    const LoadedObject* const object = object_at(objects, frames.addresses[i]);
    if (object != nullptr && !passes_calls_on(*object)) return file_of(*object);
  }
  const LoadedObject* const direct = object_at(objects, static_cast<const char*>(from) - 1);
  return direct != nullptr ? file_of(*direct) : "code outside of all libraries";
}

}  // namespace ctxbroker::detail
