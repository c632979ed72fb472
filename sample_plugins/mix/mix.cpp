// SPDX-License-Identifier: Apache-2.0
// Mix: up to eight sounds become one. Levels can move within a block.
#include <algorithm>
#include <ctxbroker/plugin.hpp>
#include <optional>

#include "mix_kernels.hpp"
#include "sizes.hpp"
#include "strip.hpp"

namespace {

using namespace ctxbroker::sdk;
using sample::most_strips;

constexpr Real level(std::uint32_t place, const char* id, const char* name) {
  return {place,  id, name, "", "1 leaves the sound as it is, 0.5 makes it 6 dB quieter.",
          {0, 8}, 1};
}
constexpr Real levels[most_strips] = {
    level(0, "level_1", "Level 1"), level(1, "level_2", "Level 2"), level(2, "level_3", "Level 3"),
    level(3, "level_4", "Level 4"), level(4, "level_5", "Level 5"), level(5, "level_6", "Level 6"),
    level(6, "level_7", "Level 7"), level(7, "level_8", "Level 8")};
constexpr auto parameters = parameter_table(levels[0], levels[1], levels[2], levels[3], levels[4],
                                            levels[5], levels[6], levels[7]);
constexpr const char* features[] = {"mixer", nullptr};

constexpr ctxb_port more(const char* id, const char* name) {
  return port(id, name, any_audio, CTXB_PORT_OPTIONAL);
}
constexpr ctxb_port inputs[most_strips] = {port("in_1", "Input 1", any_audio),
                                           more("in_2", "Input 2"),
                                           more("in_3", "Input 3"),
                                           more("in_4", "Input 4"),
                                           more("in_5", "Input 5"),
                                           more("in_6", "Input 6"),
                                           more("in_7", "Input 7"),
                                           more("in_8", "Input 8")};
constexpr ctxb_port outputs[] = {port("out", "Output", any_audio)};

class Mix final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::audio("org.ctxbroker.sample.mix", "Mix", "1.0.0")
          .vendor("ctxbroker")
          .description("Adds up to eight sounds, each with a level of its own.")
          .features(features)
          .parameters(parameters)
          .modules(mix_kernels::modules)
          .inputs(inputs)
          .outputs(outputs)
          .flags(CTXB_PLUGIN_REALTIME | CTXB_PLUGIN_UNLOADABLE);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_audio(activation);
    kernel_ = activation.kernel("mix");
  }

  // One launch for each stretch of the block on which no level changes its course.
  Outcome process(const Job& job) override {
    const AudioView out = job.output_audio();
    std::optional<Segments> segments[most_strips];
    std::optional<Segments::Iterator> at[most_strips];
    sample::Strips strips{};
    for (std::uint32_t i = 0; i < most_strips; ++i) {
      if (!job.has_input(i)) continue;
      segments[strips.count].emplace(job.segments(levels[i]));
      at[strips.count].emplace(segments[strips.count]->begin());
      strips.strip[strips.count].in = job.input_audio(i);
      ++strips.count;
    }
    for (std::uint32_t first = 0; first < out.frames;) {
      std::uint32_t end = out.frames;
      for (std::uint32_t i = 0; i < strips.count; ++i) {
        strips.strip[i].level = **at[i];
        end = std::min(end, (*at[i])->end);
      }
      job.launch(kernel_, over(end - first, out.channels), strips, out, first, end);
      for (std::uint32_t i = 0; i < strips.count; ++i) {
        if ((*at[i])->end == end) ++*at[i];
      }
      first = end;
    }
    return Outcome::done;
  }

 private:
  Kernel kernel_;
};

}  // namespace

CTXB_EXPORT_PLUGINS(Mix)
