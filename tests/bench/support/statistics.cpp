// SPDX-License-Identifier: Apache-2.0
#include "support/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace ctxbroker::bench {

double percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  const std::size_t index = std::min(std::max<std::size_t>(rank, 1), values.size()) - 1;
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

Summary summarise(std::vector<double> values) {
  Summary summary;
  summary.count = values.size();
  summary.p50 = percentile(values, 0.5);
  summary.p99 = percentile(values, 0.99);
  summary.p999 = percentile(values, 0.999);
  summary.worst = percentile(values, 1);
  return summary;
}

Comparison compare(unsigned rounds, const std::function<double()>& raw,
                   const std::function<double()>& broker) {
  Comparison comparison;
  for (unsigned round = 0; round < rounds; ++round) {
    if (round % 2 == 0) comparison.raw.push_back(raw());
    comparison.broker.push_back(broker());
    if (round % 2 != 0) comparison.raw.push_back(raw());
  }
  return comparison;
}

}  // namespace ctxbroker::bench
