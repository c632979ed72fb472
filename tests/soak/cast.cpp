// SPDX-License-Identifier: Apache-2.0
#include "cast.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include "support/test_library.hpp"

namespace ctxbroker::soak {
namespace {

namespace fs = std::filesystem;

// NVIDIA's runtime library takes no other driver than NVIDIA's.
bool with_runtime_library() {
#ifdef SOAK_WITH_RUNTIME_LIBRARY
  return !driver_is_software();
#else
  return false;
#endif
}

constexpr std::string_view prefix = "attacks_";

// The others need a library beside them, which a copy elsewhere does not find.
constexpr std::string_view stand_alone[] = {"dlsym", "linked", "proc_address", "runtime_shared",
                                            "runtime_static"};

bool is_by_runtime(const std::string& mode) {
  return mode.starts_with("runtime_");
}

}  // namespace

Copies::Copies(const Options& options) {
  for (const auto& entry : fs::directory_iterator(test_library("").parent_path())) {
    const std::string name = entry.path().stem().string();
    if (!name.starts_with(prefix) || entry.path().extension() != ".so") continue;
    const std::string mode = name.substr(prefix.size());
    if (std::count(std::begin(stand_alone), std::end(stand_alone), mode) == 0) continue;
    const bool wanted = options.modes.empty()
                            ? with_runtime_library() || !is_by_runtime(mode)
                            : std::count(options.modes.begin(), options.modes.end(), mode) > 0;
    if (wanted) originals_.push_back(entry.path());
  }
  std::sort(originals_.begin(), originals_.end());
  if (originals_.empty()) throw std::runtime_error("there is no test library of such a link mode");
  for (int i = 0; i < options.plugins; ++i) fs::copy_file(original(i), path(i));
}

fs::path Copies::path(int plugin) const {
  return folder_ / (std::to_string(plugin) + "_" + original(plugin).filename().string());
}

std::string Copies::mode(int plugin) const {
  return original(plugin).stem().string().substr(prefix.size());
}

const fs::path& Copies::original(int plugin) const {
  return originals_[static_cast<std::size_t>(plugin) % originals_.size()];
}

// Which plug-in is what, by the seed: every kind with every link mode, sooner or later.
std::vector<SeatOptions> seating(const Options& options, const Copies& copies) {
  constexpr LeaseKind all_kinds[] = {LeaseKind::green, LeaseKind::shared, LeaseKind::private_own,
                                     LeaseKind::green, LeaseKind::shared, LeaseKind::private_own,
                                     LeaseKind::green, LeaseKind::green};
  std::vector<LeaseKind> kinds;
  for (const LeaseKind kind : all_kinds) {
    if (options.leases.empty() ||
        std::count(options.leases.begin(), options.leases.end(), to_string(kind)) > 0)
      kinds.push_back(kind);
  }
  constexpr int most_partitions = 6, most_context_makers = 3;
  std::vector<SeatOptions> seats(static_cast<std::size_t>(options.plugins));
  std::vector<std::size_t> order(seats.size());
  for (std::size_t i = 0; i < seats.size(); ++i) order[i] = i;
  Random random(options.seed);
  std::shuffle(order.begin(), order.end(), random);
  int partitions = 0, makers = 0;
  for (std::size_t i = 0; i < seats.size(); ++i) {
    SeatOptions& seat = seats[order[i]];
    seat.number = static_cast<int>(order[i]);
    seat.library = copies.path(seat.number);
    seat.mode = copies.mode(seat.number);
    seat.by_runtime = is_by_runtime(seat.mode);
    seat.device = options.device;
    seat.lease = LeaseChoice(kinds[i % kinds.size()]);
    if (i % 8 == 7 && seat.lease.kind == LeaseKind::green && partitions++ < most_partitions)
      seat.lease.multiprocessors = 8;
    seat.misbehaves = (random() % 3 == 0 || i == 0) && !options.behaved;
    seat.makes_contexts = seat.misbehaves && makers++ < most_context_makers;
    seat.unloads = random() % 2 == 0;
  }
  return seats;
}

}  // namespace ctxbroker::soak
