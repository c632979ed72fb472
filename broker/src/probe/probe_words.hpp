// What a probing process is asked: the words behind the host's own arguments.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ctxbroker/driver.hpp"

namespace ctxbroker::detail {

struct ProbeWords {
  std::string probe;
  DriverChoice driver = DriverChoice::automatic;
  int device = 0;
  std::filesystem::path software_device;  // empty: beside the broker's library
};

std::vector<std::string> write_words(const ProbeWords& words);
ProbeWords read_words(const std::vector<std::string>& words);  // throws Error (invalid_argument)

}  // namespace ctxbroker::detail
