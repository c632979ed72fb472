// SPDX-License-Identifier: Apache-2.0
#include "scan/protocol.hpp"

#include "json/document.hpp"
#include "observe/enum_names.hpp"

namespace ctxbroker::detail {
namespace {

using json::Json;

constexpr const char* protocol = "ctxbroker.scan_program/1";
constexpr EnumNames<4> outcome_names{"described", "could_not_load", "crashed", "hung"};
constexpr std::uint64_t longest_deadline = 86'400'000;  // ms

// A library's words need not be UTF-8.
std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// An empty text unless there is one.
std::string text_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Json parse_line(const std::string& line) {
  std::optional<Json> json = json::parsed(line);
  return json && json->is_object() ? std::move(*json) : Json::object();
}

}  // namespace

std::string ready_line() {
  return line_of({{"ready", protocol}});
}

bool is_ready_line(const std::string& line) {
  return text_of(parse_line(line), "ready") == protocol;
}

std::string request_line(const ScanRequest& request) {
  return line_of({{"file", request.file.string()}, {"deadline_ms", request.deadline.count()}});
}

std::optional<ScanRequest> parse_request(const std::string& line) {
  const Json json = parse_line(line);
  const std::string file = text_of(json, "file");
  const auto deadline = json::whole_number(json.value("deadline_ms", Json()), longest_deadline);
  if (file.empty() || !deadline) return std::nullopt;
  return ScanRequest{file, std::chrono::milliseconds(*deadline)};
}

std::string reply_line(const std::filesystem::path& file, const Examination& examination) {
  return line_of({{"file", file.string()},
                  {"outcome", name_of(outcome_names, examination.outcome)},
                  {"text", examination.text}});
}

std::optional<Examination> parse_reply(const std::string& line, const std::filesystem::path& file) {
  const Json json = parse_line(line);
  const auto outcome = value_of<Outcome>(outcome_names, text_of(json, "outcome"));
  if (!outcome || text_of(json, "file") != file.string()) return std::nullopt;
  return Examination{*outcome, text_of(json, "text")};
}

}  // namespace ctxbroker::detail
