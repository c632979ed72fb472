// SPDX-License-Identifier: Apache-2.0
#include "probe/probe_cache.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <system_error>
#include <utility>

#include "ctxbroker/error.hpp"
#include "ctxbroker/version.hpp"
#include "json/document.hpp"
#include "observe/regular_file.hpp"
#include "observe/whole_file.hpp"
#include "probe/questions.hpp"

namespace ctxbroker {
namespace {

using json::Json;

constexpr const char* schema = "ctxbroker.probe/1";

constexpr std::array unit_names{"yes-no", "count", "milliseconds"};  // in the order of ProbeUnit

Json json_of(const ProbeAnswer& answer) {
  if (answer.outcome != ProbeOutcome::measured) return nullptr;
  if (answer.unit == ProbeUnit::yes_no) return answer.value != 0;
  if (answer.unit == ProbeUnit::count) return static_cast<std::int64_t>(answer.value);
  return answer.value;
}

Json to_object(const ProbeReport& report) {
  Json json{{"schema", schema},
            {"broker", version()},
            {"gpu", report.gpu},
            {"gpu_uuid", report.gpu_uuid},
            {"driver", to_string(report.driver.kind)},
            {"cuda_version", report.driver.version},
            {"measured", report.measured}};
  json["answers"] = Json::array();
  for (const ProbeAnswer& answer : report.answers) {
    json["answers"].push_back({{"name", answer.name},
                               {"title", answer.title},
                               {"unit", detail::name_of(unit_names, answer.unit)},
                               {"outcome", to_string(answer.outcome)},
                               {"value", json_of(answer)},
                               {"reason", answer.reason.empty() ? Json() : Json(answer.reason)},
                               {"reference", answer.reference}});
  }
  return json;
}

std::string text_of(const Json& json) {
  // A driver's words need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Throws Json::exception for a member that is missing or of another type.
bool read_answer(const Json& json, std::vector<ProbeAnswer>& answers) {
  const auto name = json.at("name").get<std::string>();
  const auto outcome =
      detail::value_of<ProbeOutcome>(detail::outcome_names, json.at("outcome").get<std::string>());
  const auto found = std::find_if(answers.begin(), answers.end(),
                                  [&](const ProbeAnswer& one) { return one.name == name; });
  if (found == answers.end() || !outcome) return false;
  found->outcome = *outcome;
  const Json& value = json.at("value");
  if (*outcome == ProbeOutcome::measured) {
    found->value = value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<double>();
    return std::isfinite(found->value);
  }
  const Json& reason = json.at("reason");
  found->reason = reason.is_null() ? "" : reason.get<std::string>();
  return true;
}

}  // namespace

std::string to_json(const ProbeReport& report) {
  Json json = to_object(report);
  json["from_cache"] = report.from_cache;
  json["cache_file"] = report.cache_file.empty() ? Json() : Json(report.cache_file.string());
  json["notes"] = report.notes;
  return text_of(json);
}

namespace detail {

namespace {

ReadProbe read_probe(const std::string& text, const ProbeKey& key) {
  const std::optional<Json> parsed = json::parsed(text);
  if (!parsed || !parsed->is_object()) return {std::nullopt, "it is not a JSON object"};
  const Json& json = *parsed;
  try {
    const bool same = json.at("schema") == schema && json.at("broker") == version() &&
                      json.at("gpu") == key.gpu &&
                      json.at("multiprocessors") == key.multiprocessors &&
                      json.at("driver_file") == key.driver_file;
    if (!same) return {};
    ProbeReport report;
    report.answers = open_answers();
    report.gpu = key.gpu;
    report.gpu_uuid = json.at("gpu_uuid").get<std::string>();
    report.measured = json.at("measured").get<std::string>();
    const Json& answers = json.at("answers");
    if (!answers.is_array() || answers.size() != report.answers.size()) {
      return {std::nullopt, "it does not have the answers that are asked for"};
    }
    for (const Json& answer : answers) {
      if (!read_answer(answer, report.answers)) return {std::nullopt, "it has a wrong answer"};
    }
    return {std::move(report), ""};
  } catch (const Json::exception& error) {
    return {std::nullopt, error.what()};
  }
}

}  // namespace

std::filesystem::path cache_file(const std::filesystem::path& folder, const ProbeKey& key) {
  const std::string machine =
      key.gpu + '\n' + std::to_string(key.multiprocessors) + '\n' + key.driver_file;
  char name[32] = {};
  std::snprintf(name, sizeof name, "probe-%016zx.json", std::hash<std::string>()(machine));
  return folder / name;
}

ReadProbe read_cache(const std::filesystem::path& file, const ProbeKey& key) {
  constexpr std::size_t most = std::size_t{1} << 20;  // bytes
  const FileReading reading = read_regular_file(file, most);
  if (reading.error == ENOENT || reading.error == ENOTDIR) return {};
  if (!reading.trouble.empty()) return {std::nullopt, "it " + reading.trouble};
  return read_probe(reading.bytes, key);
}

std::string write_cache(const std::filesystem::path& file, const ProbeReport& report,
                        const ProbeKey& key) {
  Json json = to_object(report);
  json["multiprocessors"] = key.multiprocessors;
  json["driver_file"] = key.driver_file;
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) return file.string() + ": " + error.message();
  try {
    write_own_file(file, [&](const auto& write) { write(text_of(json)); });
  } catch (const Error& failed) {
    return failed.message();
  }
  return {};
}

}  // namespace detail
}  // namespace ctxbroker
