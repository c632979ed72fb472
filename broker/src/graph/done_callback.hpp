// SPDX-License-Identifier: Apache-2.0
// GraphOptions::on_done, as the broker calls it.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>

namespace ctxbroker::detail {

// Calls `tell`, and hands the words about an exception of it to `record`. It is called on the
// driver's threads and on the broker's own, where an exception would end the process. `record` may
// throw std::bad_alloc, which loses the words.
template <typename Record>
std::function<void(std::uint64_t)> without_exceptions(std::function<void(std::uint64_t)> tell,
                                                      Record record) {
  if (!tell) return tell;
  return [tell = std::move(tell), record = std::move(record)](std::uint64_t job) noexcept {
    try {
      std::string what = "something that is no std::exception";
      try {
        return tell(job);
      } catch (const std::exception& error) {
        what = error.what();
      } catch (...) {  // NOLINT(bugprone-empty-catch): `what` says so
      }
      record("GraphOptions::on_done threw for job " + std::to_string(job) + ": " + what +
             ". The job goes on; catch exceptions in the callback");
    } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for the words
    }
  };
}

}  // namespace ctxbroker::detail
