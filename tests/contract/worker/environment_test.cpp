// SPDX-License-Identifier: Apache-2.0
// A plug-in changes the variables of the host's process: later workers get those from before.
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

#include "ctxbroker/broker.hpp"
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

}  // namespace
}  // namespace ctxbroker
