// SPDX-License-Identifier: Apache-2.0
// Presets from one instance to another, through JSON and through an upgrade of the plug-in.
#include "ctxbroker/preset.hpp"

#include <gmock/gmock.h>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
class PresetTest : public BrokerTest {
 protected:
  using Kind = PresetRemark::Kind;

  PluginInstance make(const std::string& library) {
    return broker.create(broker.load(test_plugin(library)), "parameters", InstanceOptions{});
  }
  static void set_all(PluginInstance& instance) {
    instance.set_parameter("amount", 7.3);
    instance.set_parameter("tint", {0.1, 0.2, 0.3, 1e5});
    instance.set_parameter("centre", {-1, 1.0 / 3});
    instance.set_parameter("count", 4);
    instance.set_parameter("mode", 2);  // steep
    instance.set_text("title", "Evening \"light\"");
    instance.set_text("response", "/halls/big.wav");
    instance.set_parameter("gain", -60);
  }
  // Returns the instance's preset without its version, as text. Tests compare the texts of two
  // instances, or of one instance before and after a change.
  static std::string shown(const PluginInstance& instance) {
    Preset preset = save_preset(instance);
    preset.version = "";
    return to_json(preset);
  }
  static std::vector<std::string> about(const std::vector<PresetRemark>& remarks, Kind kind) {
    std::vector<std::string> ids;
    for (const PresetRemark& remark : remarks) {
      EXPECT_FALSE(remark.text.empty());
      if (remark.kind == kind) ids.push_back(remark.parameter);
    }
    return ids;
  }
  static std::string text_about(const std::vector<PresetRemark>& remarks,
                                const std::string& parameter) {
    for (const PresetRemark& remark : remarks) {
      if (remark.parameter == parameter) return remark.text;
    }
    return "nothing";
  }

  PluginInstance instance = make("parameters");
};

TEST_F(PresetTest, PresetSetsAnotherInstanceToTheSameValues) {
  set_all(instance);
  instance.set_parameter("on", 1);
  const Preset preset = parse_preset(to_json(save_preset(instance)));
  EXPECT_EQ(std::get<std::string>(preset.values.at("mode")), "steep") << "by name";
  EXPECT_EQ(std::get<bool>(preset.values.at("on")), true);
  ASSERT_TRUE(preset.state.has_value());
  PluginInstance other = make("parameters");
  EXPECT_NE(shown(other), shown(instance));
  EXPECT_THAT(load_preset(other, preset), IsEmpty());
  EXPECT_EQ(shown(other), shown(instance));
  EXPECT_EQ(other.parameter_value("centre"), ParameterValue(-1, 1.0 / 3)) << "every bit";
}

TEST_F(PresetTest, PresetOfAnOlderVersionIsLoadedWithRemarks) {
  set_all(instance);
  PluginInstance newer = make("parameters_upgraded");
  newer.set_parameter("fresh", 1);
  const auto remarks = load_preset(newer, save_preset(instance));
  EXPECT_EQ(newer.parameter("amount"), 5) << "the nearest that the new version allows";
  EXPECT_THAT(text_about(remarks, "amount"), AllOf(HasSubstr("7.3"), HasSubstr("5 dB was taken")));
  EXPECT_EQ(newer.parameter("mode"), 0) << "steep has moved";
  EXPECT_EQ(newer.parameter("fresh"), 3) << "its default";
  EXPECT_EQ(newer.parameter_value("tint"), ParameterValue(0.1, 0.2, 0.3, 1e5));
  EXPECT_EQ(newer.text("title"), "Evening \"light\"");
  EXPECT_THAT(about(remarks, Kind::value), ElementsAre("amount"));
  EXPECT_THAT(about(remarks, Kind::missing_parameter), ElementsAre("fresh"));
  EXPECT_THAT(about(remarks, Kind::unknown_parameter), ElementsAre("on"));
  EXPECT_THAT(text_about(remarks, "on"), HasSubstr("its value off was left out"));
  EXPECT_THAT(about(remarks, Kind::version), ElementsAre(""));
  EXPECT_THAT(about(remarks, Kind::state), ElementsAre(""));

  const auto back = load_preset(instance, save_preset(newer));
  EXPECT_EQ(instance.parameter("mode"), 2);
  EXPECT_EQ(instance.parameter("on"), 0);
  EXPECT_THAT(about(back, Kind::unknown_parameter), ElementsAre("fresh"));
  EXPECT_THAT(about(back, Kind::missing_parameter), ElementsAre("on"));
  EXPECT_THAT(about(back, Kind::state), ElementsAre("")) << "it keeps its own";
}

TEST_F(PresetTest, ValuesThatAreNotAllowedBecomeTheNearestOrTheDefault) {
  Preset preset = save_preset(instance);
  preset.values["mode"] = std::string("silent");
  preset.values["gain"] = std::string("loud");
  preset.values["amount"] = true;
  preset.values["count"] = 3.6;
  preset.values["on"] = 1.0;
  preset.values["centre"] = std::vector<double>{1000, -7};
  preset.values["tint"] = std::vector<double>{1, 2};
  preset.values["title"] = std::string("\x01");
  preset.values["response"] = std::string("/big.mp3");
  set_all(instance);
  const auto remarks = load_preset(instance, preset);
  EXPECT_THAT(about(remarks, Kind::value), ElementsAre("amount", "tint", "centre", "count", "mode",
                                                       "title", "response", "gain", "on"));
  EXPECT_EQ(instance.parameter("mode"), 0);
  EXPECT_EQ(instance.parameter("gain"), 0);
  EXPECT_EQ(instance.parameter("amount"), 1);
  EXPECT_EQ(instance.parameter("count"), 4);
  EXPECT_EQ(instance.parameter_value("centre"), ParameterValue(100, -7));
  EXPECT_EQ(instance.parameter_value("tint"), ParameterValue(1, 1, 1, 1));
  EXPECT_EQ(instance.text("title"), "untitled");
  EXPECT_EQ(instance.text("response"), "");
}

TEST_F(PresetTest, PresetOfAnotherPluginIsRefused) {
  const std::string before = shown(instance);
  EXPECT_THAT(
      error_text(ErrorKind::preset, [&] { load_preset(instance, save_preset(create("affine"))); }),
      AllOf(HasSubstr("com.example.test.affine"), HasSubstr("org.ctxbroker.test.parameters")));
  EXPECT_EQ(shown(instance), before);
}

TEST_F(PresetTest, AStateThatThePluginRefusesChangesNothing) {
  set_all(instance);
  Preset preset = save_preset(make("parameters"));
  preset.state = std::vector<std::byte>(5);
  const std::string before = shown(instance);
  EXPECT_THAT(error_text(ErrorKind::plugin_failed, [&] { load_preset(instance, preset); }),
              HasSubstr("not my state"));
  EXPECT_EQ(shown(instance), before);
}

TEST_F(PresetTest, ActiveInstanceLoadsOnlyChangeableValues) {
  PluginInstance newer = make("parameters_upgraded");  // has no state
  newer.set_parameter("amount", 2);
  newer.set_parameter("tint", {1, 2, 3, 4});
  const Preset loud = save_preset(newer);
  newer.set_parameter("amount", 1);
  newer.set_parameter("tint", {1, 1, 1, 1});
  newer.activate(test_sizes);
  EXPECT_THAT(load_preset(newer, loud), IsEmpty());
  EXPECT_EQ(run({&newer})[0], 2.0F);
  EXPECT_EQ(save_preset(newer).values, loud.values) << "without a state, also while active";

  Preset other = loud;
  other.values["amount"] = 3.0;
  other.values["title"] = std::string("another");
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { load_preset(newer, other); }),
              AllOf(HasSubstr("\"title\""), HasSubstr("deactivate it first")));
  other.values["title"] = loud.values.at("title");
  other.values["count"] = 9.0;
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { load_preset(newer, other); }),
              HasSubstr("\"count\""));
  EXPECT_EQ(newer.parameter("amount"), 2) << "nothing was half applied";

  const Preset with_state = save_preset(instance);
  instance.activate(test_sizes);
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { load_preset(instance, with_state); }),
              HasSubstr("the plug-in's state"));
  error_text(ErrorKind::wrong_state, [&] { static_cast<void>(save_preset(instance)); });
}

}  // namespace
}  // namespace ctxbroker
