// SPDX-License-Identifier: Apache-2.0
// What happened, counted by all threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace ctxbroker::soak {

class Tally {
 public:
  std::atomic<std::uint64_t> jobs{0}, wrong_outputs{0}, losses{0}, rebuilt{0}, attacks{0},
      resets{0}, strikes{0}, opened{0}, unloaded{0}, unexpected{0};
  std::atomic<std::uint64_t> green_losses{0};  // of the losses

  // What a misbehaving library was answered, a job that a forced loss ended: by kind.
  void expected(const std::string& kind);
  // What must not be. The first few are kept in full.
  void wrong(const std::string& kind, const std::string& text);
  // A warning from the broker, whatever numbers and handles are in it.
  void record(const std::string& topic, const std::string& text);

  struct Errors {
    std::map<std::string, std::uint64_t> expected, unexpected, records;
    std::vector<std::string> texts;
  };
  Errors errors() const;

 private:
  mutable std::mutex mutex_;
  Errors errors_;
};

}  // namespace ctxbroker::soak
