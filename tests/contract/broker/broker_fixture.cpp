// SPDX-License-Identifier: Apache-2.0
#include "broker_fixture.hpp"
#include <dlfcn.h>

#include <cstdlib>
#include <numeric>
#include <utility>

namespace ctxbroker {

std::filesystem::path test_plugin(const std::string& name) {
  const auto bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return bin.parent_path() / "test_plugins" / (name + ".so");
}

bool is_mapped(const std::filesystem::path& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

std::string error_text(ErrorKind kind, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_STREQ(to_string(error.kind()), to_string(kind)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error; " << to_string(kind) << " was expected";
  return {};
}

BrokerTest::BrokerTest() : broker(Broker::open(options())) {
  // For the plug-ins that call the driver themselves.
  setenv("CTXB_TEST_DRIVER", broker.driver().path.c_str(), 1);
}

BrokerOptions BrokerTest::options() {
  BrokerOptions options;
  // What guards, leases and ledgers do alone: these hosts and plug-ins reach the driver by its
  // path, past the gate, which has tests of its own; a test that wants it all the same says so to
  // its child.
  options.use_gate = std::getenv("CTXB_TEST_GATE") != nullptr;
  options.host_name = "contract test";
  options.host_version = "1";
  options.records = [this](const Record& record) {
    const std::lock_guard lock(mutex_);
    records_.push_back(record);
  };
  return options;
}

void BrokerTest::reopen_with(MemorySource memory) {
  BrokerOptions chosen = options();
  chosen.host.memory = memory;
  chosen.policy.for_all.memory = memory;
  broker = Broker::open(std::move(chosen));
}

PluginInstance BrokerTest::create(const std::string& behaviour, LeaseKind lease,
                                  std::uint64_t budget) {
  return broker.create(behaviours(), behaviour, {Placement(0), LeaseChoice(lease), budget});
}

PluginInstance BrokerTest::active(const std::string& behaviour, LeaseKind lease,
                                  std::uint64_t budget) {
  PluginInstance instance = create(behaviour, lease, budget);
  instance.activate(test_sizes);
  return instance;
}

std::vector<float> BrokerTest::run(const std::vector<PluginInstance*>& stages, std::uint32_t width,
                                   std::uint32_t height) {
  std::vector<float> input(std::size_t{width} * height * 4);
  std::iota(input.begin(), input.end(), 0.0F);
  std::vector<float> output(input.size(), -1.0F);
  JobInfo job;
  job.width = width;
  job.height = height;
  GraphOptions options;
  options.measure = true;
  Graph(broker, stages, test_sizes, options).process(input.data(), output.data(), job);
  return output;
}

std::vector<std::string> BrokerTest::said(const std::string& topic) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> texts;
  for (const auto& record : records_) {
    if (record.topic == topic) texts.push_back(record.text);
  }
  return texts;
}

}  // namespace ctxbroker
