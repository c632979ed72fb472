// SPDX-License-Identifier: Apache-2.0
// A plug-in changes the variables of the host's process: later workers get those from before, and
// the broker looks where it looked before.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/scan.hpp"
#include "support/temp_folder.hpp"
#include "worker_fixture.hpp"

namespace ctxbroker {
namespace {

class EnvironmentTest : public WorkerTest {
 public:
  ~EnvironmentTest() override {
    clearenv();
    for (const auto& [name, value] : before) setenv(name.c_str(), value.c_str(), 1);
  }

 protected:
  EnvironmentTest() {
    for (char** one = environ; *one != nullptr; ++one) {
      const std::string entry = *one;
      before[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
    }
    setenv("CUDA_TEST_VARIABLE", "host", 1);
  }
  std::string variable_of_worker(const std::string& name) {
    Worker worker(options());
    return say(worker, Act::environment, name);
  }

  std::map<std::string, std::string> before;
};

TEST_F(EnvironmentTest, WhatIsSetAfterTheBrokerWasOpenedStaysOutOfWorkers) {
  const Broker broker = Broker::open({});
  setenv("CUDA_TEST_VARIABLE", "plug-in", 1);
  setenv("CTXBROKER_TEST_VARIABLE", "plug-in", 1);
  EXPECT_EQ(variable_of_worker("CUDA_TEST_VARIABLE"), "host");
  EXPECT_EQ(variable_of_worker("CTXBROKER_TEST_VARIABLE"), "");
  // A second broker comes when plug-ins are there already.
  const Broker second = Broker::open({});
  EXPECT_EQ(variable_of_worker("CUDA_TEST_VARIABLE"), "host");
}

TEST_F(EnvironmentTest, WorkersStartAfterEverythingWasCleared) {
  const Broker broker = Broker::open({});
  clearenv();
  ASSERT_EQ(environ, nullptr);
  EXPECT_EQ(variable_of_worker("CUDA_TEST_VARIABLE"), "host");
}

TEST_F(EnvironmentTest, WithoutABrokerWorkersGetWhatIsThereNow) {
  setenv("CUDA_TEST_VARIABLE", "later", 1);
  EXPECT_EQ(variable_of_worker("CUDA_TEST_VARIABLE"), "later") << "the control";
  {
    const Broker broker = Broker::open({});
    setenv("CUDA_TEST_VARIABLE", "plug-in", 1);
  }
  EXPECT_EQ(variable_of_worker("CUDA_TEST_VARIABLE"), "plug-in") << "the host may have set it";
  clearenv();
  EXPECT_EQ(variable_of_worker("CUDA_TEST_VARIABLE"), "");
}

// A scan that runs nothing and keeps nothing.
std::vector<LibraryState> states_found() {
  ScanOptions options;
  options.standard = false;
  options.safe = true;
  options.use_cache = false;
  std::vector<LibraryState> states;
  for (const ScannedLibrary& one : scan(options).libraries) states.push_back(one.state);
  return states;
}

TEST_F(EnvironmentTest, RescanFindsTheFoldersAndTheChoicesFromBefore) {
  const TempFolder folder;
  const std::filesystem::path library = folder / "disabled.so";
  write_bytes(library, "no library");
  setenv("CTXBROKER_PLUGIN_PATH", folder.path().c_str(), 1);
  setenv("XDG_CONFIG_HOME", (folder / "config").c_str(), 1);
  set_library_enabled(library, false);
  const std::vector<LibraryState> disabled{LibraryState::disabled};
  ASSERT_EQ(states_found(), disabled);
  {
    const Broker broker = Broker::open({});
    setenv("XDG_CONFIG_HOME", (folder / "elsewhere").c_str(), 1);
    EXPECT_EQ(states_found(), disabled);
    setenv("CTXBROKER_PLUGIN_PATH", (folder / "elsewhere").c_str(), 1);
    EXPECT_EQ(states_found(), disabled);
    clearenv();
    EXPECT_EQ(states_found(), disabled);
    setenv("CTXBROKER_PLUGIN_PATH", folder.path().c_str(), 1);
    setenv("XDG_CONFIG_HOME", (folder / "elsewhere").c_str(), 1);
  }
  const std::vector<LibraryState> now = states_found();
  ASSERT_EQ(now.size(), 1U);
  EXPECT_NE(now, disabled) << "the control: without a broker, what is there now counts";
}

}  // namespace
}  // namespace ctxbroker
