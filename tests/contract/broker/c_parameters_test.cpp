// SPDX-License-Identifier: Apache-2.0
// host_parameters.h: parameters of every type and presets, as a host written in C sets them.
#include <gmock/gmock.h>

#include <array>
#include <string>
#include <vector>

#include "broker_fixture.hpp"
#include "ctxbroker/host.h"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CParametersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ctxb_broker_open(nullptr, &broker), CTXB_OK) << ctxb_last_error();
    ASSERT_EQ(ctxb_plugin_library_load(broker, test_plugin("parameters").c_str(), &library),
              CTXB_OK)
        << ctxb_last_error();
    ASSERT_EQ(ctxb_instance_create(broker, library, "parameters", nullptr, &instance), CTXB_OK)
        << ctxb_last_error();
  }
  void TearDown() override {
    EXPECT_EQ(ctxb_instance_destroy(instance), CTXB_OK) << ctxb_last_error();
    EXPECT_EQ(ctxb_plugin_library_close(library), CTXB_OK);
    EXPECT_EQ(ctxb_broker_close(broker), CTXB_OK) << ctxb_last_error();
  }

  ctxb_parameter_info describe(std::uint32_t parameter) const {
    ctxb_parameter_info info{};
    info.size = sizeof info;
    EXPECT_EQ(ctxb_plugin_library_parameter(library, 0, parameter, &info), CTXB_OK);
    return info;
  }
  static ctxb_status append(void* data, const char* text, std::uint64_t bytes) {
    static_cast<std::vector<std::string>*>(data)->emplace_back(text, bytes);
    return CTXB_OK;
  }
  std::string text(const char* id) const {
    std::vector<std::string> pieces;
    EXPECT_EQ(ctxb_instance_text(instance, id, append, &pieces), CTXB_OK) << ctxb_last_error();
    return pieces.size() == 1 ? pieces[0] : "";
  }
  std::string preset() const {
    std::vector<std::string> pieces;
    EXPECT_EQ(ctxb_instance_save_preset(instance, append, &pieces), CTXB_OK) << ctxb_last_error();
    return pieces.size() == 1 ? pieces[0] : "";
  }

  ctxb_broker* broker = nullptr;
  ctxb_plugin_library* library = nullptr;
  ctxb_instance* instance = nullptr;
  std::array<double, 4> numbers{7, 7, 7, 7};
};

TEST_F(CParametersTest, ParameterInfoDescribesEveryType) {
  const ctxb_parameter_info amount = describe(0), tint = describe(1), title = describe(5),
                            response = describe(6);
  EXPECT_STREQ(amount.group, "Strength");
  EXPECT_EQ(amount.skew, 3);
  EXPECT_EQ(tint.type, std::uint32_t{CTXB_PARAMETER_COLOUR});
  EXPECT_EQ(tint.number_count, 4U);
  EXPECT_THAT(tint.default_numbers, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(describe(3).flags, CTXB_PARAMETER_ADVANCED);
  EXPECT_EQ(title.flags, CTXB_PARAMETER_HIDDEN);
  EXPECT_EQ(title.number_count, 0U);
  EXPECT_STREQ(title.default_text, "untitled");
  EXPECT_EQ(title.endings[0], nullptr);
  EXPECT_STREQ(response.endings[1], ".flac");
  EXPECT_EQ(response.endings[2], nullptr);
}

TEST_F(CParametersTest, NumbersOfAParameterAreSetAndReadTogether) {
  const std::array<double, 4> colour{1, 2, 3, 4};
  EXPECT_EQ(ctxb_instance_set_numbers(instance, 1, colour.data(), 4), CTXB_OK);
  EXPECT_EQ(ctxb_instance_numbers(instance, 1, numbers.data()), CTXB_OK);
  EXPECT_EQ(numbers, colour);
  EXPECT_EQ(ctxb_instance_numbers(instance, 2, numbers.data()), CTXB_OK);
  EXPECT_THAT(numbers, ElementsAre(0, 50, 0, 0));
  EXPECT_EQ(ctxb_instance_set_parameter(instance, "gain", -3), CTXB_OK);
  EXPECT_EQ(ctxb_instance_numbers(instance, 7, numbers.data()), CTXB_OK);
  EXPECT_THAT(numbers, ElementsAre(-3, 0, 0, 0));

  for (const std::uint32_t count : {0U, 1U, 2U, 3U, 5U}) {
    EXPECT_EQ(ctxb_instance_set_numbers(instance, 1, colour.data(), count),
              CTXB_ERROR_INVALID_ARGUMENT)
        << count;
  }
  const double high = 1e9, some = 4;
  EXPECT_EQ(ctxb_instance_set_numbers(instance, 7, &high, 1), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_instance_set_numbers(instance, 99, &some, 1), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_instance_set_numbers(instance, 5, &some, 1), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_instance_numbers(instance, 5, numbers.data()), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_instance_numbers(instance, 99, numbers.data()), CTXB_ERROR_INVALID_ARGUMENT);
  const ctxb_activation_sizes sizes{sizeof sizes, 8, 8, 0, 0};
  ASSERT_EQ(ctxb_instance_activate(instance, &sizes), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_instance_set_numbers(instance, 3, &some, 1), CTXB_ERROR_WRONG_STATE);
  EXPECT_EQ(ctxb_instance_set_numbers(instance, 0, &some, 1), CTXB_OK);
  EXPECT_EQ(ctxb_instance_set_text(instance, "title", "x"), CTXB_ERROR_WRONG_STATE);
}

TEST_F(CParametersTest, ParameterValuesBecomeTextAndBack) {
  std::vector<std::string> pieces;
  const std::array<double, 2> origin{0, 0};
  EXPECT_EQ(ctxb_instance_print(instance, "centre", origin.data(), 2, append, &pieces), CTXB_OK);
  EXPECT_THAT(pieces, ElementsAre("middle"));
  EXPECT_EQ(ctxb_instance_read(instance, "tint", "1 0.5 0", numbers.data()), CTXB_OK);
  EXPECT_THAT(numbers, ElementsAre(1, 0.5, 0, 1));
  EXPECT_EQ(ctxb_instance_read(instance, "gain", "loud", numbers.data()),
            CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("-60 to 12 dB"));
  EXPECT_EQ(ctxb_instance_set_text(instance, "title", "Grün"), CTXB_OK);
  EXPECT_EQ(text("title"), "Grün");
  EXPECT_EQ(ctxb_instance_set_text(instance, "response", "/big.mp3"), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr(".wav, .flac"));
}

TEST_F(CParametersTest, PresetsComeBackWithRemarks) {
  const std::string first = preset();
  EXPECT_EQ(ctxb_instance_set_parameter(instance, "amount", 4), CTXB_OK);
  const std::string louder = preset();
  EXPECT_NE(first, louder);
  std::vector<std::string> remarks;
  EXPECT_EQ(ctxb_instance_load_preset(instance, first.c_str(), append, &remarks), CTXB_OK);
  EXPECT_TRUE(remarks.empty());
  EXPECT_EQ(preset(), first);
  std::string older = louder;
  older.replace(older.find("\"amount\""), 8, "\"ammount\"");
  EXPECT_EQ(ctxb_instance_load_preset(instance, older.c_str(), append, &remarks), CTXB_OK);
  EXPECT_THAT(remarks, ElementsAre(HasSubstr("\"amount\"; its default"), HasSubstr("\"ammount\"")));
  EXPECT_EQ(ctxb_instance_load_preset(instance, older.c_str(), nullptr, nullptr), CTXB_OK);
  EXPECT_EQ(ctxb_instance_load_preset(instance, "{", append, &remarks),
            CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), AllOf(HasSubstr("preset"), HasSubstr("is not JSON")));
}

TEST_F(CParametersTest, NullArgumentsAreRefused) {
  const double one = 1;
  const std::vector<ctxb_status> answers = {
      ctxb_instance_set_numbers(nullptr, 0, &one, 1),
      ctxb_instance_set_numbers(instance, 0, nullptr, 1),
      ctxb_instance_numbers(nullptr, 0, numbers.data()),
      ctxb_instance_numbers(instance, 0, nullptr),
      ctxb_instance_print(nullptr, "gain", &one, 1, append, nullptr),
      ctxb_instance_print(instance, nullptr, &one, 1, append, nullptr),
      ctxb_instance_print(instance, "gain", nullptr, 1, append, nullptr),
      ctxb_instance_print(instance, "gain", &one, 1, nullptr, nullptr),
      ctxb_instance_read(nullptr, "gain", "1", numbers.data()),
      ctxb_instance_read(instance, nullptr, "1", numbers.data()),
      ctxb_instance_read(instance, "gain", nullptr, numbers.data()),
      ctxb_instance_read(instance, "gain", "1", nullptr),
      ctxb_instance_set_text(nullptr, "title", ""),
      ctxb_instance_set_text(instance, nullptr, ""),
      ctxb_instance_set_text(instance, "title", nullptr),
      ctxb_instance_text(nullptr, "title", append, nullptr),
      ctxb_instance_text(instance, nullptr, append, nullptr),
      ctxb_instance_text(instance, "title", nullptr, nullptr),
      ctxb_instance_save_preset(nullptr, append, nullptr),
      ctxb_instance_save_preset(instance, nullptr, nullptr),
      ctxb_instance_load_preset(nullptr, "{}", nullptr, nullptr),
      ctxb_instance_load_preset(instance, nullptr, nullptr, nullptr)};
  for (std::size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i], CTXB_ERROR_INVALID_ARGUMENT) << i;
  }
}

}  // namespace
}  // namespace ctxbroker
