// SPDX-License-Identifier: Apache-2.0
// Each rule for ports, broken by a plug-in.
#include <gmock/gmock.h>

#include <cstdlib>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A fault of the fixture "ports" for the time of a test.
class PortFault {
 public:
  explicit PortFault(const char* name) { setenv("CTXB_TEST_PORT_FAULT", name, 1); }
  PortFault(const PortFault&) = delete;
  PortFault& operator=(const PortFault&) = delete;
  ~PortFault() { unsetenv("CTXB_TEST_PORT_FAULT"); }
};

struct BrokenRule {
  const char* fault;
  const char* port;  // as the refusal names it
  const char* rule;
};

class PortRulesTest : public BrokerTest, public ::testing::WithParamInterface<BrokenRule> {};

TEST_P(PortRulesTest, BrokenPortRuleIsRefusedWithPluginPortAndRule) {
  const BrokenRule& broken = GetParam();
  const PortFault fault(broken.fault);
  for (int attempt = 0; attempt < 2; ++attempt) {  // a refusal leaves nothing behind
    EXPECT_THAT(
        error_text(ErrorKind::plugin_entry, [&] { return broker.load(test_plugin("ports")); }),
        AllOf(HasSubstr("ports.so"), HasSubstr("plug-in com.example.test.ports"),
              HasSubstr(broken.port), HasSubstr(broken.rule),
              HasSubstr("the plug-in's author has to correct its descriptor")));
  }
  EXPECT_FALSE(is_mapped(test_plugin("ports")));
  broker.close();  // nothing is alive
}

INSTANTIATE_TEST_SUITE_P(
    All, PortRulesTest,
    ::testing::Values(
        BrokenRule{"no_output", "", "it has no output"},
        BrokenRule{"many_inputs", "input", "input_count is absurd"},
        BrokenRule{"absurd_outputs", "output", "output_count is absurd"},
        BrokenRule{"null_inputs", "inputs", "is null, input_count is not 0"},
        BrokenRule{"null_outputs", "outputs", "is null, output_count is not 0"},
        BrokenRule{"crooked_inputs", "inputs[0]", "is not that of a ctxb_port"},
        BrokenRule{"no_size", "inputs[0]", "size is not that of a ctxb_port"},
        BrokenRule{"short_size", "outputs[0]", "size is not that of a ctxb_port"},
        BrokenRule{"absurd_size", "inputs[0]", "size is not that of a ctxb_port"},
        BrokenRule{"odd_size", "inputs[0]", "size is not that of a ctxb_port"},
        BrokenRule{"unequal_size", "inputs[1].size is", "differ in size"},
        BrokenRule{"null_id", "inputs[1].id", "is null"},
        BrokenRule{"empty_id", "inputs[1].id", "\"\" is not made of [a-z0-9_]"},
        BrokenRule{"capital_id", "inputs[1].id", "\"Second\" is not made of [a-z0-9_]"},
        BrokenRule{"dotted_id", "outputs[0].id", "\"out.1\" is not made of [a-z0-9_]"},
        BrokenRule{"endless_id", "outputs[0].id", "too long"},
        BrokenRule{"same_inputs", "\"first\"", "two inputs have the id"},
        BrokenRule{"same_outputs", "\"out\"", "two outputs have the id"},
        BrokenRule{"null_name", "input first", "name is null"},
        BrokenRule{"empty_name", "output found", "name is empty"},
        BrokenRule{"dirty_name", "input first", "no clean UTF-8"},
        BrokenRule{"no_channels", "input first", "channels is 0"},
        BrokenRule{"no_samples", "output out", "samples has no type that this host knows"},
        BrokenRule{"unknown_samples", "input second", "samples has no type"},
        BrokenRule{"half_audio", "input first", "samples of audio are CTXB_SAMPLE_FLOAT"},
        BrokenRule{"media_results", "", "media is 3"},
        BrokenRule{"side_chain_image", "input second", "only an input for audio"},
        BrokenRule{"side_chain_output", "output out", "only an input for audio"},
        BrokenRule{"side_chain_results", "output found", "only an input for audio"},
        BrokenRule{"in_place_input", "input first", "in_place is not the number of an input"},
        BrokenRule{"in_place_of_none", "output out", "in_place is not the number of an input"},
        BrokenRule{"in_place_absurd", "output out", "in_place is not the number of an input"},
        BrokenRule{"results_in", "input second", "an input has results"},
        BrokenRule{"results_without_flag", "output out", "result_bytes belongs to results"},
        BrokenRule{"results_of_nothing", "output found", "not between 1 and 65536"},
        BrokenRule{"results_too_long", "output found", "not between 1 and 65536"},
        BrokenRule{"results_with_channels", "output found", "have to be 0 for results"},
        BrokenRule{"results_with_samples", "output found", "have to be 0 for results"},
        BrokenRule{"results_in_place", "output found", "have to be 0 for results"}),
    [](const auto& test) { return std::string(test.param.fault); });

class SoundPortsTest : public BrokerTest {
 protected:
  PluginInstance active_ports() {
    PluginInstance instance = broker.create(broker.load(test_plugin("ports")), "ports");
    instance.activate(test_sizes);
    return instance;
  }
};

// The control: these tests see the fault and nothing else.
TEST_F(SoundPortsTest, SoundPluginPassesItsInputOn) {
  PluginInstance instance = active_ports();
  EXPECT_EQ(run({&instance})[5], 5.0F);
}

TEST_F(SoundPortsTest, ResultOfABypassedPluginIsZero) {
  PluginInstance instance = active_ports();
  Graph graph(broker,
              {{{"in"}},
               {{"out"}, {"found"}},
               {{"ports", &instance}},
               {{"in", "ports"}, {"ports", "out"}, {"ports.found", "found"}}},
              test_sizes);
  const float pixel[4] = {1, 2, 3, 4};
  float out[4] = {};
  std::uint64_t found = 77;
  graph.process({{pixel}, {out, &found}}, {});
  EXPECT_THAT(out, ::testing::ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(found, 0u);
}

TEST_F(SoundPortsTest, BypassOfAGeneratorIsAnError) {
  const PortFault fault("generator");
  PluginInstance instance = active_ports();
  Graph graph(broker, {{}, {{"out"}}, {{"ports", &instance}}, {{"ports", "out"}}}, test_sizes);
  float out[4] = {};
  EXPECT_THAT(error_text(ErrorKind::plugin_failed,
                         [&] {
                           graph.process({{}, {out}}, {});
                         }),
              AllOf(HasSubstr("plug-in ports answered CTXB_BYPASS"), HasSubstr("output out")));
}

TEST_F(SoundPortsTest, BypassToAnotherFormatIsAnError) {
  const PortFault fault("other_channels");
  PluginInstance instance = active_ports();
  Graph graph(broker,
              {{{"in"}}, {{"out", 1}}, {{"ports", &instance}}, {{"in", "ports"}, {"ports", "out"}}},
              test_sizes);
  const float pixel[4] = {1, 2, 3, 4};
  float out[4] = {};
  EXPECT_THAT(error_text(ErrorKind::plugin_failed,
                         [&] {
                           graph.process({{pixel}, {out}}, {});
                         }),
              AllOf(HasSubstr("output out has no input of the same format"), HasSubstr("ports")));
}

}  // namespace
}  // namespace ctxbroker
