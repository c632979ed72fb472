// SPDX-License-Identifier: Apache-2.0
#include "observe/lasting.hpp"

#include <mutex>
#include <new>
#include <set>
#include <string>

namespace ctxbroker::detail {

const char* lasting(std::string_view text) noexcept {
  // Never destroyed: threads go on while static objects end.
  static auto& mutex = *new std::mutex;
  static auto& all = *new std::set<std::string, std::less<>>;
  try {
    const std::lock_guard lock(mutex);
    const auto found = all.find(text);
    return found != all.end() ? found->c_str() : all.emplace(text).first->c_str();
  } catch (const std::bad_alloc&) {
    return "(no memory for the name)";
  }
}

}  // namespace ctxbroker::detail
