// SPDX-License-Identifier: Apache-2.0
// A broker on whatever driver CTXBROKER_DRIVER names, the test plug-ins, and everything it said.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/graph.hpp"

namespace ctxbroker {

std::filesystem::path test_plugin(const std::string& name);  // "behaviours"
bool is_mapped(const std::filesystem::path& library);        // in this process

// Runs `work`, which must throw an Error of `kind`; returns its text.
std::string error_text(ErrorKind kind, const std::function<void()>& work);

class BrokerTest : public ::testing::Test {
 protected:
  BrokerTest();

  BrokerOptions options();
  // Opens another broker, in which all tenants, the host's own too, have memory from there.
  void reopen_with(MemorySource memory);
  PluginLibrary behaviours() { return broker.load(test_plugin("behaviours")); }
  PluginInstance create(const std::string& behaviour, LeaseKind lease = LeaseKind::automatic,
                        std::uint64_t budget = 0);
  // Created and active for 64 x 64.
  PluginInstance active(const std::string& behaviour, LeaseKind lease = LeaseKind::automatic,
                        std::uint64_t budget = 0);

  // Runs one job of width x height through the stages; the input is 0, 1, 2, ...
  std::vector<float> run(const std::vector<PluginInstance*>& stages, std::uint32_t width = 8,
                         std::uint32_t height = 4);

  // Texts of the records with this topic, so far.
  std::vector<std::string> said(const std::string& topic) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Record> records_;

 protected:
  Broker broker;  // after the records, which it writes to the end
};

inline constexpr ActivationSizes test_sizes{64, 64, 0, false};

}  // namespace ctxbroker
