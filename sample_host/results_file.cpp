// SPDX-License-Identifier: Apache-2.0
#include "results_file.hpp"

#include <cstring>
#include <nlohmann/json.hpp>

namespace ctxbroker::sample_host {

namespace {

using Json = nlohmann::ordered_json;

Json hex(const unsigned char* bytes, std::size_t count) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    text += digits[bytes[i] >> 4U];
    text += digits[bytes[i] & 15U];
  }
  return text;
}

// Bytes behind the last whole number are left out.
template <typename Number>
Json numbers(const unsigned char* bytes, std::size_t count) {
  Json list = Json::array();
  for (std::size_t i = 0; i + sizeof(Number) <= count; i += sizeof(Number)) {
    Number number{};
    std::memcpy(&number, bytes + i, sizeof number);
    list.push_back(number);
  }
  return list;
}

Json values(ResultType type, const void* results, std::size_t bytes) {
  const auto* const first = static_cast<const unsigned char*>(results);
  switch (type) {
    case ResultType::float32:
      return numbers<float>(first, bytes);
    case ResultType::int32:
      return numbers<std::int32_t>(first, bytes);
    case ResultType::uint32:
      return numbers<std::uint32_t>(first, bytes);
    case ResultType::hex:
      break;
  }
  return hex(first, bytes);
}

}  // namespace

std::size_t words_of(std::uint32_t result_bytes) noexcept {
  return (result_bytes + sizeof(float) - 1) / sizeof(float);
}

ResultsFile::ResultsFile(const PlannedPort& port) : port_(port), file_(port.file) {
  write("{\n\"schema\": \"ctxbroker.sample_host.results/1\",\n\"output\": " +
        Json(port.name).dump() + ",\n\"as\": \"" + to_string(port.as) + "\",\n\"rows\": [");
}

void ResultsFile::add(std::int64_t position, std::uint32_t frames, const void* results,
                      std::uint32_t bytes) {
  const Json row{
      {"position", position}, {"frames", frames}, {"results", values(port_.as, results, bytes)}};
  write((rows_ == 0 ? "\n" : ",\n") + row.dump());
  ++rows_;
}

void ResultsFile::finish() {
  write("\n]\n}\n");
  file_.check();
}

void ResultsFile::write(const std::string& text) {
  file_.write(text.data(), text.size());
}

}  // namespace ctxbroker::sample_host
