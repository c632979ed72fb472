// SPDX-License-Identifier: Apache-2.0
// tone, compressor and spectrum compute what their references do, whatever the blocks.
#include <cmath>
#include <cstring>
#include <map>

#include "audio_fixture.hpp"
#include "reference_plugins.hpp"
#include "spectrum/results.hpp"

namespace ctxbroker::test {
namespace {

using reference::Audio;
using reference::Channel;

class AudioPluginsTest : public AudioTest {
 protected:
  // In blocks of every length the same bytes, and those of the reference.
  void expect_reference(const std::vector<Signal>& inputs, const Audio& expected,
                        const Changes& changes = {}) {
    const std::size_t frames = expected[0].size();
    Signal first;
    for (const auto& lengths : block_lengths) {
      SCOPED_TRACE("blocks of " + std::to_string(lengths[0]));
      const Signal out = run_once(inputs, frames, lengths, changes);
      if (first.empty()) {
        first = out;
        expect_close(out, expected);
      }
      ASSERT_TRUE(same_bytes(out, first));
    }
  }
};

TEST_F(AudioPluginsTest, ToneWithoutChangesIsASteadySine) {
  description.outputs = {{"out"}};
  add("tone", "tone", {{"frequency", 997}, {"level", 0.75}});
  edge("tone", "out");
  const Channel sine = reference::tone(
      5000, rate, [](std::size_t) { return 997.0; }, [](std::size_t) { return 0.75; });
  expect_reference({}, {sine, sine});
}

// The frequency jumps at frame 1000, and glides from 2000 to 3000. The level fades out at the end.
TEST_F(AudioPluginsTest, ToneFollowsChangesAtTheirSample) {
  description.outputs = {{"out"}};
  PluginInstance& tone = add("tone", "tone", {{"frequency", 200}, {"level", 0.5}});
  edge("tone", "out");
  const std::size_t frequency = tone.description().parameter_index("frequency");
  const std::size_t level = tone.description().parameter_index("level");
  const Changes changes = {{&tone, frequency, 1000, 3000},
                           {&tone, level, 1500, 1},
                           {&tone, frequency, 2000, 100, 1000, 3000},
                           {&tone, level, 4000, 0, 777, 1}};
  const Channel sine = reference::tone(
      5000, rate,
      [](std::size_t i) {
        if (i < 1000) return 200.0;
        if (i < 2000) return 3000.0;
        return i < 3000 ? 3000 - 2.9 * static_cast<double>(i - 2000) : 100.0;
      },
      [](std::size_t i) {
        if (i < 1500) return 0.5;
        if (i < 4000) return 1.0;
        return i < 4777 ? 1 - static_cast<double>(i - 4000) / 777 : 0.0;
      });
  // Each graph begins with the values that the one before has left.
  const auto begin_anew = [&] {
    tone.set_parameter("frequency", 200);
    tone.set_parameter("level", 0.5);
  };
  Signal first;
  for (const auto& lengths : block_lengths) {
    SCOPED_TRACE("blocks of " + std::to_string(lengths[0]));
    begin_anew();
    const Signal out = run_once({}, 5000, lengths, changes);
    EXPECT_EQ(tone.parameter("frequency"), 100);
    EXPECT_EQ(tone.parameter("level"), 0);
    if (first.empty()) {
      first = out;
      expect_close(out, {sine, sine});
    }
    ASSERT_TRUE(same_bytes(out, first));
  }
}

TEST_F(AudioPluginsTest, ToneAboveHalfTheRateIsHalfTheRate) {
  description.outputs = {{"out"}};
  add("tone", "tone", {{"frequency", 40000}});
  edge("tone", "out");
  const Signal out = run_once({}, 100, {64});
  for (const float sample : out[0]) EXPECT_NEAR(sample, 0, 1e-6);
}

constexpr reference::Compressor fast{-30, 8, 0.5, 20, 6, 0};

ParameterList parameters_of(const reference::Compressor& how) {
  return {{"threshold", how.threshold},
          {"ratio", how.ratio},
          {"attack", how.attack_ms},
          {"release", how.release_ms},
          {"make_up", how.make_up},
          {"look_ahead", static_cast<double>(how.look_ahead) / rate * 1000}};
}

TEST_F(AudioPluginsTest, CompressorWithoutAKeyFollowsItsInput) {
  description.inputs = {{"in"}};
  description.outputs = {{"out"}};
  add("compressor", "compressor", parameters_of(fast));
  edge("in", "compressor");
  edge("compressor", "out");
  const Audio in = test_audio(2, 6000, 4);
  expect_reference({signal_of(in)}, reference::compressed(in, in, fast, rate));
}

TEST_F(AudioPluginsTest, CompressorListensToAKeyAndLooksAhead) {
  description.inputs = {{"in"}, {"key", 1}};
  description.outputs = {{"out"}};
  reference::Compressor how{-50, 3, 2, 150, 0, 96};
  add("compressor", "compressor", parameters_of(how));
  edge("in", "compressor");
  edge("key", "compressor.key");
  edge("compressor", "out");
  const Audio in = test_audio(2, 6000, 4), key = test_audio(1, 6000, 5);
  expect_reference({signal_of(in), signal_of(key)}, reference::compressed(in, key, how, rate));
}

TEST_F(AudioPluginsTest, CompressorWithoutTimesFollowsEachSample) {
  description.inputs = {{"in"}};
  description.outputs = {{"out"}};
  const reference::Compressor limiter{-12, 100, 0, 0, 0, 0};
  add("compressor", "compressor", parameters_of(limiter));
  edge("in", "compressor");
  edge("compressor", "out");
  const Audio in = test_audio(2, 5000, 4);
  expect_reference({signal_of(in)}, reference::compressed(in, in, limiter, rate));
}

// The windows of a signal, by their numbers, however it is cut into blocks.
using Windows = std::map<std::uint64_t, std::vector<float>>;

class SpectrumTest : public AudioTest {
 protected:
  SpectrumTest() {
    description.inputs = {{"in"}};
    description.outputs = {{"bins"}};
    add("spectrum", "spectrum");
    edge("in", "spectrum");
    edge("spectrum", "bins");
    result_bytes = sample::spectrum::result_bytes;
    take_results = [this](const std::vector<std::byte>& bytes) {
      sample::spectrum::Header header{};
      std::memcpy(&header, bytes.data(), sizeof header);
      ASSERT_EQ(header.size, sizeof header);
      ASSERT_EQ(header.window_frames, 1024U);
      ASSERT_EQ(header.hop_frames, 512U);
      ASSERT_EQ(header.bin_count, 513U);
      ASSERT_EQ(header.sample_rate, rate);
      ASSERT_LE(header.windows, 16U);
      const std::size_t window_bytes = header.bin_count * sizeof(float);
      for (std::uint32_t w = 0; w < 16; ++w) {
        std::vector<float> bins(header.bin_count);
        std::memcpy(bins.data(), bytes.data() + sizeof header + w * window_bytes, window_bytes);
        if (w < header.windows) {
          EXPECT_TRUE(windows.emplace(header.first_window + w, bins).second) << "reported twice";
        } else {
          EXPECT_EQ(bins, std::vector<float>(header.bin_count, 0.0F));
        }
      }
    };
  }
  Windows measure(const Signal& in, const std::vector<std::size_t>& lengths) {
    windows.clear();
    Graph graph(broker, description, {longest, channels, rate});
    run(graph, {in}, in[0].size(), lengths);
    return windows;
  }
  Windows windows;
};

TEST_F(SpectrumTest, WindowsDoNotDependOnTheBlocks) {
  const Audio in = test_audio(2, 9000, 6);
  const Windows first = measure(signal_of(in), {1});
  ASSERT_EQ(first.size(), 16U);  // (9000 - 1024) / 512 + 1
  for (const auto& [number, bins] : first) {
    SCOPED_TRACE(number);
    expect_close(bins, reference::spectrum(in, number * 512, 1024));
  }
  for (const auto& lengths : block_lengths) {
    SCOPED_TRACE("blocks of " + std::to_string(lengths[0]));
    const Windows again = measure(signal_of(in), lengths);
    ASSERT_EQ(again.size(), first.size());
    for (const auto& [number, bins] : first) {
      EXPECT_EQ(std::memcmp(again.at(number).data(), bins.data(), bins.size() * sizeof(float)), 0)
          << "window " << number;
    }
  }
}

TEST_F(SpectrumTest, ASineOfFullScaleIsOneInItsBin) {
  Audio in(2, Channel(1024));
  for (std::size_t i = 0; i < 1024; ++i) {
    in[0][i] = in[1][i] =
        std::sin(2 * 3.14159265358979323846 * 100 * static_cast<double>(i) / 1024);
  }
  const Windows one = measure(signal_of(in), {64});
  ASSERT_EQ(one.size(), 1U);
  EXPECT_NEAR(one.at(0)[100], 1, 1e-5);
  EXPECT_NEAR(one.at(0)[99], 0.5, 1e-5) << "Hann's window";
  EXPECT_NEAR(one.at(0)[103], 0, 1e-5);
}

}  // namespace
}  // namespace ctxbroker::test
