// SPDX-License-Identifier: Apache-2.0
#include "tally.hpp"

#include <regex>

namespace ctxbroker::soak {

void Tally::expected(const std::string& kind) {
  const std::lock_guard lock(mutex_);
  ++errors_.expected[kind];
}

void Tally::wrong(const std::string& kind, const std::string& text) {
  constexpr std::size_t most_texts = 20;
  ++unexpected;
  const std::lock_guard lock(mutex_);
  ++errors_.unexpected[kind];
  if (errors_.texts.size() < most_texts) errors_.texts.push_back(kind + ": " + text);
}

void Tally::record(const std::string& topic, const std::string& text) {
  static const std::regex numbers("0x[0-9a-f]+|[0-9]+");
  const std::string kind = topic + ": " + std::regex_replace(text, numbers, "#");
  const std::lock_guard lock(mutex_);
  ++errors_.records[kind];
}

Tally::Errors Tally::errors() const {
  const std::lock_guard lock(mutex_);
  return errors_;
}

}  // namespace ctxbroker::soak
