// SPDX-License-Identifier: Apache-2.0
// One plug-in of the soak: a library of its own, the tenant that it runs as, and what is asked of
// it. Any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <shared_mutex>
#include <string>

#include "attacks/work.h"
#include "ctxbroker/broker.hpp"
#include "tally.hpp"

namespace ctxbroker::soak {

using Random = std::mt19937;

struct SeatOptions {
  int number = 0;
  std::filesystem::path library;
  std::string mode;  // how it reaches the driver
  int device = 0;
  LeaseChoice lease;
  bool misbehaves = false;
  bool by_runtime = false;      // its own reset takes what the runtime library keeps for it
  bool makes_contexts = false;  // one of its own for each life of its tenant
  bool unloads = false;         // its library leaves the process with each tenant; else it stays
};

class Seat {
 public:
  // Without a broker the library is loaded as any other, and all share the primary context.
  // `main` serialises what a host does on its main thread.
  Seat(SeatOptions options, Broker* broker, std::mutex& main, Tally& tally);
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  int number() const noexcept { return options_.number; }
  bool misbehaves() const noexcept { return options_.misbehaves; }

  void open();
  // False when a thread is inside: nothing was closed. A misbehaving one leaves what it holds.
  bool close();

  // One piece of honest work.
  void job(Random& random);
  // One misdeed, at the cost of `victim` or of all.
  void attack(Random& random, Seat& victim);
  // The host gives up the life of its context, whatever it is doing.
  void lose();
  // Its budget is used up, or it has had as many lives as a tenant of its kind may.
  bool wants_reopening() const noexcept { return worn_.load(); }

 private:
  std::uint64_t generation();
  std::uint64_t life();
  enum class Place { guarded, own_thread, unguarded };
  bool run_work(WorkOrder& order, Place place);
  void judge(const WorkOrder& order, Place place);
  void load();
  void look_at_thread(const char* after);
  void end_work();

  const SeatOptions options_;
  Broker* const broker_;
  std::mutex& main_;
  Tally& tally_;

  std::shared_mutex open_;    // exclusive: opening and closing
  std::mutex working_;        // one piece of work at a time
  std::shared_mutex making_;  // exclusive: while what it keeps changes
  bool is_open_ = false;
  std::optional<Tenant> tenant_;
  void* library_ = nullptr;  // without a broker
  work_function *work_ = nullptr, *work_on_own_thread_ = nullptr, *end_work_ = nullptr;
  attack_function *attack_ = nullptr, *attack_on_own_thread_ = nullptr;
  std::optional<AttackTarget> made_;  // what others may aim at
  std::uint64_t settled_ = 0;         // the life that it was made in; 0: nothing is
  std::atomic<std::uint64_t> own_resets_{0};
  std::atomic<unsigned> lives_{0};
  std::atomic<bool> has_made_context_{false}, worn_{false};
};

}  // namespace ctxbroker::soak
