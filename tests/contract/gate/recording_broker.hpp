// SPDX-License-Identifier: Apache-2.0
// An open broker, and what it has said.
#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "ctxbroker/broker.hpp"

namespace ctxbroker {

class RecordingBrokerTest : public ::testing::Test {
 protected:
  RecordingBrokerTest() : broker(Broker::open(options())) {}

  BrokerOptions options() {
    BrokerOptions all;
    all.records = [this](const Record& record) {
      const std::lock_guard lock(mutex_);
      said_.push_back(std::string(record.topic) + ": " + record.text);
    };
    return all;
  }
  // Each as "topic: text".
  std::vector<std::string> said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> said_;

 protected:
  Broker broker;
};

}  // namespace ctxbroker
