// SPDX-License-Identifier: Apache-2.0
#include "observe/lasting.hpp"

#include <mutex>
#include <new>
#include <set>
#include <string>

namespace ctxbroker::detail {

const char* lasting(std::string_view text) noexcept {
  static constinit std::mutex mutex;
  try {
    const std::lock_guard lock(mutex);
    // Never destroyed: threads go on while static objects end.
    static auto& all = *new std::set<std::string, std::less<>>;
    const auto found = all.find(text);
    return found != all.end() ? found->c_str() : all.emplace(text).first->c_str();
  } catch (const std::bad_alloc&) {
    return "(no memory for the name)";
  }
}

}  // namespace ctxbroker::detail
