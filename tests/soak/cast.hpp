// SPDX-License-Identifier: Apache-2.0
// Who takes part: a library of its own for each plug-in, and which of them does what.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "options.hpp"
#include "seat.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker::soak {

// A folder of copies: as many libraries, each with variables of its own, as there are plug-ins.
class Copies {
 public:
  // Throws std::runtime_error when there is nothing to be copied.
  explicit Copies(const Options& options);

  std::filesystem::path path(int plugin) const;
  std::string mode(int plugin) const;  // "dlsym"
  std::size_t modes() const noexcept { return originals_.size(); }

 private:
  const std::filesystem::path& original(int plugin) const;
  std::vector<std::filesystem::path> originals_;
  TempFolder folder_;
};

// Which plug-in is what, by the seed: every kind with every link mode, sooner or later.
std::vector<SeatOptions> seating(const Options& options, const Copies& copies);

}  // namespace ctxbroker::soak
