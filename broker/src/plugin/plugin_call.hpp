// SPDX-License-Identifier: Apache-2.0
// Calls a plug-in's code. Every call goes through here: inside a guard, and with exceptions caught.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "context/guard.hpp"
#include "observe/running.hpp"
#include "observe/span.hpp"
#include "process/turn.hpp"

namespace ctxbroker::detail {

struct CallOutcome {
  CUresult entered = CUDA_SUCCESS;  // after an error the plug-in was not called
  bool threw = false;               // the plug-in threw an exception, which was caught
  // The plug-in was not called, because this code of its library did not end in time.
  std::optional<TurnUser> busy{};
  bool ran() const noexcept { return entered == CUDA_SUCCESS && !threw && !busy; }
};

// Calls `function`, which calls the plug-in, inside `target`. An exception is a strike.
template <typename Function>
CallOutcome call_plugin(const GuardTarget& target, const GuardedCall& call,
                        Function&& function) noexcept {
  const ContextGuard guard(target, call);
  CallOutcome outcome{guard.status()};
  if (outcome.entered != CUDA_SUCCESS) return outcome;
  const ScopedSpan span(SpanCategory::call, call.function,
                        call.plugin != nullptr ? call.plugin : call.tenant->name.c_str(),
                        call.tenant->id);
  const RunningNote note(call.plugin_id, call.library, call.function);
  try {
    std::forward<Function>(function)();
  } catch (const std::exception& error) {
    outcome.threw = true;
    try {
      const std::string text = std::string("threw an exception: ") + error.what();
      strike(*call.tenant, call.strikes, call.function, text.c_str());
    } catch (...) {
      strike(*call.tenant, call.strikes, call.function, "threw an exception");
    }
  } catch (...) {
    outcome.threw = true;
    strike(*call.tenant, call.strikes, call.function,
           "threw an object that is not a std::exception");
  }
  return outcome;
}

}  // namespace ctxbroker::detail
