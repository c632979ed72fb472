// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "qos/campaign.hpp"

namespace ctxbroker::bench {
namespace {

nlohmann::json to_json(const Summary& summary) {
  return {{"blocks", summary.count},
          {"p50_us", summary.p50 / 1e3},
          {"p99_us", summary.p99 / 1e3},
          {"p999_us", summary.p999 / 1e3},
          {"worst_us", summary.worst / 1e3}};
}

nlohmann::json to_json(const CaseResult& result) {
  nlohmann::json one = {{"arrangement", result.arrangement->name},
                        {"load", result.load->name},
                        {"victims_multiprocessors", result.victims_multiprocessors},
                        {"neighbours_multiprocessors", result.neighbours_multiprocessors}};
  if (!result.failure.empty()) {
    one["failure"] = result.failure;
    return one;
  }
  one["solo"] = to_json(result.solo);
  one["loaded"] = to_json(result.loaded);
  one["neighbour_did"] = result.done;
  one["neighbour_was_refused"] = result.refused;
  return one;
}

}  // namespace

void write_json(const std::string& path, Session& session, const CampaignOptions& options,
                const std::vector<CaseResult>& results) {
  const DriverInfo& driver = session.broker().driver();
  nlohmann::json document = {{"device", session.device().name},
                             {"driver", driver.path},
                             {"driver_version", driver.version},
                             {"seconds", options.seconds},
                             {"hog_milliseconds", options.loads.hog_milliseconds},
                             {"cases", nlohmann::json::array()}};
  for (const CaseResult& result : results) document["cases"].push_back(to_json(result));
  std::ofstream file(path);
  file << document.dump(2) << '\n';
  file.close();
  if (!file) throw std::runtime_error("the file \"" + path + "\" cannot be written");
}

}  // namespace ctxbroker::bench
