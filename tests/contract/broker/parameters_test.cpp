// SPDX-License-Identifier: Apache-2.0
// Parameters of every type, from the host to the plug-in and back as text.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <thread>
#include <vector>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class ParametersTest : public BrokerTest {
 protected:
  // Positions of the values in the plug-in's output.
  enum : std::size_t { amount, tint, centre = 5, count = 7, mode, gain, on, title_length };

  PluginInstance instance =
      broker.create(broker.load(test_plugin("parameters")), "parameters", InstanceOptions{});

  std::string to_text(const char* id, const ParameterValue& value) const {
    return instance.to_text(id, value);
  }
};

TEST_F(ParametersTest, ParametersOfEveryTypeReachThePlugin) {
  instance.set_parameter("count", 7);
  instance.set_parameter("mode", 2);
  instance.set_text("title", "Grün");
  instance.set_text("response", "/halls/big.WAV");
  instance.activate(test_sizes);
  EXPECT_THAT(said("plugin"), AllOf(Contains("title: Grün"), Contains("response: /halls/big.WAV")));
  std::vector<float> values = run({&instance});
  EXPECT_EQ(values[amount], 1.0F);
  EXPECT_EQ(values[tint + 3], 1.0F);
  EXPECT_EQ(values[centre + 1], 50.0F);
  EXPECT_EQ(values[count], 7.0F);
  EXPECT_EQ(values[mode], 2.0F);
  EXPECT_EQ(values[on], 0.0F);
  EXPECT_EQ(values[title_length], 5.0F) << "bytes";

  instance.set_parameter("amount", 2.5);
  instance.set_parameter("tint", {1, 2, 3, 4});
  instance.set_parameter("centre", {-3, 0.5});
  instance.set_parameter("on", 1);
  values = run({&instance});
  EXPECT_EQ(values[amount], 2.5F);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(values[tint + i], static_cast<float>(i + 1));
  EXPECT_EQ(values[centre], -3.0F);
  EXPECT_EQ(values[centre + 1], 0.5F);
  EXPECT_EQ(values[on], 1.0F);
  EXPECT_EQ(instance.parameter_value("tint"), ParameterValue(1, 2, 3, 4));
  EXPECT_EQ(instance.parameter("centre"), -3);
}

TEST_F(ParametersTest, ParametersAreDescribedToTheHost) {
  const auto& all = instance.description().parameters;
  EXPECT_EQ(all[0].group, "Strength");
  EXPECT_EQ(all[0].skew, 3);
  EXPECT_EQ(all[0].from_position(0.5), 1.25);
  EXPECT_EQ(all[0].to_position(1.25), 0.5);
  EXPECT_EQ(all[1].type, ParameterType::colour);
  EXPECT_TRUE(all[3].advanced && !all[3].automatable && !all[3].hidden);
  EXPECT_TRUE(all[5].hidden && !all[5].automatable);
  EXPECT_EQ(all[5].default_text, "untitled");
  EXPECT_THAT(all[6].endings, ::testing::ElementsAre(".wav", ".flac"));
}

TEST_F(ParametersTest, ARefusalSaysWhatIsAllowedAndChangesNothing) {
  const auto refused = [&](ErrorKind kind, const char* id, const ParameterValue& value) {
    return error_text(kind, [&] { instance.set_parameter(id, value); });
  };
  EXPECT_THAT(refused(ErrorKind::parameter_value, "tint", 1),
              HasSubstr("red, green, blue and alpha, each from 0 to 100000"));
  EXPECT_THAT(refused(ErrorKind::parameter_value, "centre", {0, 101}),
              HasSubstr("\"centre\" cannot be 0 101; it takes two numbers, x and y, from -100"));
  EXPECT_THAT(refused(ErrorKind::parameter_value, "amount", {1, 1}), HasSubstr("a number from 0"));
  EXPECT_THAT(refused(ErrorKind::invalid_argument, "title", 1), HasSubstr("set_text"));
  const auto refused_text = [&](ErrorKind kind, const char* id, const std::string& text) {
    return error_text(kind, [&] { instance.set_text(id, text); });
  };
  EXPECT_THAT(refused_text(ErrorKind::parameter_value, "response", "/big.mp3"),
              HasSubstr("the path of a file that ends with one of: .wav, .flac"));
  EXPECT_THAT(refused_text(ErrorKind::parameter_value, "title", std::string(4097, 'a')),
              HasSubstr("at most 4096 bytes"));
  EXPECT_THAT(refused_text(ErrorKind::parameter_value, "title", "\xFF"), HasSubstr("UTF-8"));
  refused_text(ErrorKind::parameter_value, "title", std::string("a\0b", 3));
  EXPECT_THAT(refused_text(ErrorKind::invalid_argument, "gain", "1"), HasSubstr("set_parameter"));
  error_text(ErrorKind::invalid_argument, [&] { static_cast<void>(instance.parameter("title")); });
  error_text(ErrorKind::invalid_argument, [&] { static_cast<void>(instance.text("gain")); });
  EXPECT_EQ(instance.text("title"), "untitled");
  EXPECT_EQ(instance.text("response"), "");
  EXPECT_EQ(instance.parameter_value("tint"), ParameterValue(1, 1, 1, 1));
}

TEST_F(ParametersTest, TextsChangeOnlyWhileInactive) {
  instance.activate(test_sizes);
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { instance.set_text("title", "x"); }),
              HasSubstr("deactivate it first"));
  EXPECT_EQ(run({&instance})[title_length], 8.0F);
  instance.deactivate();
  instance.set_text("title", "x");
  instance.activate(test_sizes);
  EXPECT_EQ(run({&instance})[title_length], 1.0F);
}

TEST_F(ParametersTest, AFilesPathBecomesAbsolute) {
  instance.set_text("response", "halls/../big.wav");
  EXPECT_EQ(instance.text("response"), (std::filesystem::current_path() / "big.wav").string());
  instance.set_text("response", "");
  EXPECT_EQ(instance.text("response"), "");
}

TEST_F(ParametersTest, SetParameterByIndexAnswersWithAStatus) {
  instance.activate(test_sizes);
  EXPECT_EQ(instance.try_set_parameter(0, 4), ParameterStatus::set);
  EXPECT_EQ(instance.try_set_parameter(1, {4, 3, 2, 1}), ParameterStatus::set);
  EXPECT_EQ(instance.try_set_parameter(0, 10.5), ParameterStatus::bad_value);
  EXPECT_EQ(instance.try_set_parameter(0, std::nan("")), ParameterStatus::bad_value);
  EXPECT_EQ(instance.try_set_parameter(1, 4), ParameterStatus::bad_value);
  EXPECT_EQ(instance.try_set_parameter(3, 4), ParameterStatus::not_automatable);
  EXPECT_EQ(instance.try_set_parameter(3, 4.5), ParameterStatus::bad_value);
  EXPECT_EQ(instance.try_set_parameter(5, 1), ParameterStatus::bad_value) << "text";
  EXPECT_EQ(instance.try_set_parameter(9, 1), ParameterStatus::unknown_parameter);
  const std::vector<float> values = run({&instance});
  EXPECT_EQ(values[amount], 4.0F);
  EXPECT_EQ(values[tint], 4.0F);
  EXPECT_EQ(values[count], 2.0F);
  instance.deactivate();
  EXPECT_EQ(instance.try_set_parameter(3, 4), ParameterStatus::set);
}

TEST_F(ParametersTest, ParameterValuesBecomeTextAndBack) {
  EXPECT_EQ(to_text("amount", 2.5), "2.5 dB");
  EXPECT_EQ(to_text("on", 1), "on");
  EXPECT_EQ(to_text("mode", 1), "loud");
  EXPECT_EQ(to_text("tint", {1, 0.5, 0, 1}), "1 0.5 0 1");
  EXPECT_EQ(to_text("centre", {1, 2}), "1 2 px");
  EXPECT_EQ(to_text("gain", -60), "-inf dB") << "the plug-in's own word";
  EXPECT_EQ(to_text("centre", {0, 0}), "middle");
  EXPECT_EQ(instance.from_text("amount", "2.5 dB"), 2.5);
  EXPECT_EQ(instance.from_text("mode", "steep"), 2);
  EXPECT_EQ(instance.from_text("tint", "1:0.5:0"), ParameterValue(1, 0.5, 0, 1));
  EXPECT_EQ(instance.from_text("gain", "-inf dB"), -60);
  EXPECT_EQ(instance.from_text("centre", "middle"), ParameterValue(0, 0));
  EXPECT_EQ(instance.from_text("centre", "1, -2 px"), ParameterValue(1, -2));
  EXPECT_EQ(instance.parameter("gain"), 0) << "nothing was set";
}

TEST_F(ParametersTest, TextThatIsNoValueIsRefusedWithTheAllowedOnes) {
  const auto refused = [&](const char* id, const char* text) {
    return error_text(ErrorKind::parameter_value,
                      [&] { static_cast<void>(instance.from_text(id, text)); });
  };
  EXPECT_THAT(refused("gain", "louder"), HasSubstr("a number from -60 to 12 dB"));
  EXPECT_THAT(refused("centre", "left"),
              AllOf(HasSubstr("\"left\""), HasSubstr("write middle, or x and y")));
  EXPECT_THAT(refused("gain", "too loud"), HasSubstr("cannot be 99"))
      << "the plug-in's number is checked";
  EXPECT_THAT(error_text(ErrorKind::parameter_value,
                         [&] { static_cast<void>(instance.to_text("gain", 13)); }),
              HasSubstr("cannot be 13"));
  error_text(ErrorKind::invalid_argument, [&] { static_cast<void>(instance.to_text("title", 1)); });
}

// Threads set a colour whose numbers are equal. No job may see two that differ.
TEST_F(ParametersTest, ParametersSetByOtherThreadsAreNeverTornInAJob) {
  instance.set_parameter("centre", {0, 0});
  instance.activate(test_sizes);
  std::atomic<bool> end{false};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = thread; !end; i = (i + 3) % 100000) {
        const double value = i;
        if (instance.try_set_parameter(1, {value, value, value, value}) != ParameterStatus::set ||
            instance.try_set_parameter(2, {value / 1000, value / 1000}) != ParameterStatus::set) {
          ++refused;
        }
        const ParameterValue seen = instance.parameter_value("tint");
        if (seen[0] != seen[3]) ++refused;
      }
    });
  }
  std::size_t changes = 0;
  float last = -1;
  {
    Graph graph(broker, {&instance}, test_sizes);
    JobInfo job;
    job.width = 8;
    job.height = 4;
    std::vector<float> in(128), out(128);
    for (int i = 0; i < 300 || (changes < 2 && i < 100000); ++i) {
      graph.process(in.data(), out.data(), job);
      for (std::size_t one = 1; one < 4; ++one) EXPECT_EQ(out[tint], out[tint + one]) << i;
      EXPECT_EQ(out[centre], out[centre + 1]) << i;
      changes += out[tint] != last ? 1 : 0;
      last = out[tint];
    }
  }
  end = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 0);
  EXPECT_GT(changes, 1U) << "the threads did set something";
}

}  // namespace
}  // namespace ctxbroker
