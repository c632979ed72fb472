#include "ctxbroker/plugin_description.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "ctxbroker/error.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ParameterDescription number(double low, double high) {
  ParameterDescription parameter;
  parameter.id = "stops";
  parameter.unit = "EV";
  parameter.minimum = low;
  parameter.maximum = high;
  return parameter;
}

std::string refusal(const ParameterDescription& parameter, std::string_view text) {
  try {
    static_cast<void>(parameter.parse(text));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::parameter_value);
    return error.what();
  }
  ADD_FAILURE() << text << " was accepted";
  return {};
}

TEST(ParameterTest, ReadsNumbers) {
  const auto parameter = number(-10, 10);
  EXPECT_EQ(parameter.parse("0.5"), 0.5);
  EXPECT_EQ(parameter.parse("-3e0"), -3.0);
  EXPECT_EQ(parameter.parse("+2"), 2.0);
  EXPECT_EQ(parameter.parse("10"), 10.0);
}

TEST(ParameterTest, RefusesWhatIsNoNumberWithTheRange) {
  const auto parameter = number(-10, 10);
  for (const char* text :
       {"", "x", "1x", "0x10", " 1", "1 ", "--1", "1,5", "nan", "inf", "1e999"}) {
    EXPECT_THAT(refusal(parameter, text), AllOf(HasSubstr("\"stops\""), HasSubstr("-10 to 10 EV")))
        << text;
  }
  EXPECT_THAT(refusal(parameter, "10.01"), HasSubstr("10.01"));
}

TEST(ParameterTest, WholeNumbersOnlyForIntegers) {
  auto parameter = number(1, 64);
  parameter.type = ParameterType::integer;
  EXPECT_EQ(parameter.parse("6"), 6.0);
  EXPECT_THAT(refusal(parameter, "6.5"), HasSubstr("a whole number from 1 to 64"));
}

TEST(ParameterTest, BooleansByManyWords) {
  auto parameter = number(0, 1);
  parameter.type = ParameterType::boolean;
  for (const char* text : {"true", "on", "yes", "1"}) EXPECT_EQ(parameter.parse(text), 1.0);
  for (const char* text : {"false", "off", "no", "0"}) EXPECT_EQ(parameter.parse(text), 0.0);
  EXPECT_THAT(refusal(parameter, "maybe"), HasSubstr("on or off"));
  EXPECT_THAT(refusal(parameter, "0.5"), HasSubstr("on or off"));
}

TEST(ParameterTest, ChoicesByNameOrIndex) {
  auto parameter = number(0, 1);
  parameter.type = ParameterType::choice;
  parameter.choices = {"low", "high"};
  EXPECT_EQ(parameter.parse("high"), 1.0);
  EXPECT_EQ(parameter.parse("0"), 0.0);
  EXPECT_THAT(refusal(parameter, "middle"), HasSubstr("one of: low, high"));
  EXPECT_THAT(refusal(parameter, "2"), HasSubstr("one of: low, high"));
}

TEST(ParameterTest, CheckKnowsNaN) {
  EXPECT_THROW(number(0, 1).check(std::numeric_limits<double>::quiet_NaN()), Error);
  EXPECT_THROW(number(0, 1).check(std::numeric_limits<double>::infinity()), Error);
  EXPECT_NO_THROW(number(0, 1).check(1));
}

TEST(PluginDescriptionTest, AnUnknownParameterListsTheKnownOnes) {
  PluginDescription plugin;
  plugin.short_name = "exposure";
  plugin.parameters = {number(0, 1), number(0, 1)};
  plugin.parameters[1].id = "gamma";
  EXPECT_EQ(plugin.parameter_index("gamma"), 1u);
  try {
    static_cast<void>(plugin.parameter_index("gama"));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unknown_parameter);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("exposure"), HasSubstr("stops, gamma")));
  }
}

}  // namespace
}  // namespace ctxbroker
