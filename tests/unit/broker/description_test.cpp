// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/plugin_description.hpp"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

#include "ctxbroker/error.hpp"
#include "json/document.hpp"
#include "observe/number_text.hpp"
#include "support/comma_locale.hpp"

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

// Plug-ins and toolkits of the host set the process's locale.
TEST(ParameterTest, TextsOfNumbersDoNotDependOnTheLocale) {
  const CommaLocale locale;
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%g", 0.5);
  ASSERT_STREQ(text.data(), "0,5") << "the control";
  const auto parameter = number(-10, 10);
  EXPECT_EQ(parameter.format(0.5), "0.5 EV");
  EXPECT_EQ(parameter.parse("0.5 EV"), 0.5);
  EXPECT_THAT(refusal(parameter, "10.5"), HasSubstr("10.5"));
  EXPECT_EQ(json::parse("[0.5, 1e3]", "a text").dump(), "[0.5,1000.0]");
}

TEST(NumberTextTest, NumbersAreWrittenAsPrintfWritesThem) {
  for (const double value : {0.0, -0.0, 0.5, 1e-7, 123456789.25, 1e300, -2.5e-300, 100000.0,
                             std::numeric_limits<double>::infinity()}) {
    std::array<char, 400> text{};
    std::snprintf(text.data(), text.size(), "%.10g", value);
    EXPECT_EQ(detail::general_text(value, 10), text.data());
    std::snprintf(text.data(), text.size(), "%.2f", value);
    EXPECT_EQ(detail::fixed_text(value, 2), text.data());
  }
}

TEST(ParameterTest, IntegersTakeOnlyWholeNumbers) {
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

TEST(ParameterTest, AUnitMayFollowANumber) {
  const auto parameter = number(-10, 10);
  EXPECT_EQ(parameter.parse("0.5 EV"), 0.5);
  EXPECT_EQ(parameter.parse("0.5EV"), 0.5);
  for (const char* text : {"EV", " EV", "0.5 ev", "0.5 EV EV", "0.5 V"}) refusal(parameter, text);
}

// A unit that could be digits must not change what a person wrote.
TEST(ParameterTest, ANumberIsReadBeforeItsUnit) {
  auto parameter = number(0, 100);
  parameter.unit = "0";
  EXPECT_EQ(parameter.parse("50"), 50.0);
  EXPECT_EQ(parameter.parse("50 0"), 50.0);
  EXPECT_EQ(parameter.parse(parameter.format(7)), 7.0);
}

TEST(ParameterTest, ColoursAndPointsHaveSeveralNumbers) {
  auto parameter = number(0, 4);
  parameter.type = ParameterType::colour;
  parameter.default_value = {1, 1, 1, 0.5};
  EXPECT_EQ(parameter.parse("1 2 3 4"), ParameterValue(1, 2, 3, 4));
  EXPECT_EQ(parameter.parse("1,2, 3 : 4"), ParameterValue(1, 2, 3, 4));
  EXPECT_EQ(parameter.parse("1:0.25:0"), ParameterValue(1, 0.25, 0, 0.5)) << "the default's alpha";
  for (const char* text :
       {"", "1", "1 2", "1 2 3 4 0", "1 2 3 4 ", "1 2 3 5", "1 2 x 4", " 1 2 3"}) {
    EXPECT_THAT(refusal(parameter, text), HasSubstr("red, green, blue and alpha, each from 0 to 4"))
        << text;
  }
  parameter.type = ParameterType::point;
  EXPECT_EQ(parameter.parse("1 2"), ParameterValue(1, 2));
  EXPECT_EQ(parameter.parse("1 2 EV"), ParameterValue(1, 2));
  for (const char* text : {"1", "1 2 3", "1 -2"}) refusal(parameter, text);
  EXPECT_THROW(parameter.check(1), Error);
  EXPECT_THROW(parameter.check({1, 1, 1, 1}), Error);
  EXPECT_NO_THROW(parameter.check({0, 4}));
}

TEST(ParameterTest, PrintedValuesAreReadBack) {
  auto parameter = number(-10, 10);
  EXPECT_EQ(parameter.format(0.7), "0.7 EV");
  EXPECT_EQ(parameter.parse(parameter.format(-2.25)), -2.25);
  parameter.type = ParameterType::point;
  EXPECT_EQ(parameter.format({1, -2.5}), "1 -2.5 EV");
  EXPECT_EQ(parameter.parse(parameter.format({1, -2.5})), ParameterValue(1, -2.5));
  parameter = number(0, 1);
  parameter.unit = "";
  parameter.type = ParameterType::boolean;
  EXPECT_EQ(parameter.format(1), "on");
  parameter.type = ParameterType::choice;
  parameter.choices = {"low", "high"};
  EXPECT_EQ(parameter.format(1), "high");
}

TEST(ParameterTest, StringParameterChecksItsText) {
  auto parameter = number(0, 0);
  parameter.type = ParameterType::string;
  EXPECT_NO_THROW(parameter.check_text("Grün\n"));
  EXPECT_NO_THROW(parameter.check_text(std::string(4096, 'a')));
  EXPECT_THROW(parameter.check_text(std::string(4097, 'a')), Error);
  EXPECT_THROW(parameter.check_text(std::string_view("a\0b", 3)), Error);
  EXPECT_THROW(parameter.check_text("\xFF"), Error);
  refusal(parameter, "1");
  EXPECT_THROW(parameter.check(0), Error);
  parameter.type = ParameterType::file;
  EXPECT_NO_THROW(parameter.check_text("/any/file"));
  parameter.endings = {".wav", ".flac"};
  EXPECT_NO_THROW(parameter.check_text("/a.WaV"));
  EXPECT_NO_THROW(parameter.check_text("")) << "none";
  EXPECT_THROW(parameter.check_text("/a.wav.txt"), Error);
  EXPECT_THROW(parameter.check_text("wav"), Error);
  EXPECT_THROW(number(0, 1).check_text("1"), Error) << "no text";
}

TEST(ParameterTest, SliderPositionFollowsTheSkew) {
  auto parameter = number(20, 20020);
  EXPECT_EQ(parameter.from_position(0.25), 5020);
  parameter.skew = 2;
  EXPECT_EQ(parameter.from_position(0.5), 5020);
  EXPECT_EQ(parameter.to_position(5020), 0.5);
  EXPECT_EQ(parameter.from_position(0), 20);
  EXPECT_EQ(parameter.from_position(1), 20020);
  EXPECT_EQ(parameter.from_position(-1), 20);
  EXPECT_EQ(parameter.to_position(1e9), 1);
  for (int eighths = 0; eighths <= 8; ++eighths) {
    const double position = eighths / 8.0;
    EXPECT_NEAR(parameter.to_position(parameter.from_position(position)), position, 1e-12);
    EXPECT_NO_THROW(parameter.check(parameter.from_position(position)));
  }
  parameter.type = ParameterType::integer;
  EXPECT_EQ(parameter.from_position(0.01), 22) << "whole";
  EXPECT_EQ(number(3, 3).to_position(3), 0) << "a range of one number";
}

TEST(ParameterTest, CheckRefusesNaNAndInfinity) {
  EXPECT_THROW(number(0, 1).check(std::numeric_limits<double>::quiet_NaN()), Error);
  EXPECT_THROW(number(0, 1).check(std::numeric_limits<double>::infinity()), Error);
  auto point = number(0, 1);
  point.type = ParameterType::point;
  EXPECT_THROW(point.check({0, std::numeric_limits<double>::quiet_NaN()}), Error);
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
