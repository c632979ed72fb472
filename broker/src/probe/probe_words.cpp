#include "probe/probe_words.hpp"

#include <charconv>

#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {

std::vector<std::string> write_words(const ProbeWords& words) {
  std::vector<std::string> all = {words.probe, to_string(words.driver),
                                  std::to_string(words.device)};
  if (!words.software_device.empty()) all.push_back(words.software_device.string());
  return all;
}

ProbeWords read_words(const std::vector<std::string>& words) {
  const Error wrong(ErrorKind::invalid_argument,
                    "the words for run_probe are a probe, a driver, a device's number and, if "
                    "wished, the software device's file; pass on what the broker appended");
  if (words.size() < 3 || words.size() > 4) throw wrong;
  ProbeWords read;
  read.probe = words[0];
  const auto driver = parse_driver_choice(words[1]);
  const std::string& number = words[2];
  const auto [stop, error] =
      std::from_chars(number.data(), number.data() + number.size(), read.device);
  if (!driver || error != std::errc() || stop != number.data() + number.size()) throw wrong;
  read.driver = *driver;
  if (words.size() == 4) read.software_device = words[3];
  return read;
}

}  // namespace ctxbroker::detail
