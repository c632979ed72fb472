// SPDX-License-Identifier: Apache-2.0
// A plug-in with the parameters that the page about hosts names. It passes its input on.
#include <ctxbroker/plugin.hpp>

namespace {

using namespace ctxbroker::sdk;

constexpr const char* endings[] = {".wav", nullptr};
constexpr Real radius{0, "radius", "Radius", "", "", {0, 64}, 1};
constexpr Point centre{1, "centre", "Centre", "", "", {0, 1}, {0.5, 0.5}};
constexpr Colour colour{2, "colour", "Colour", "", {0, 4}, {1, 1, 1, 1}};
constexpr File response{3, "response", "Response", "", endings};
constexpr Real gain{4, "gain", "Gain", "dB", "", {-60, 12}, 0};
constexpr auto parameters = parameter_table(radius, centre, colour, response, gain);

class Grade final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::image("com.example.grade", "Grade", "1.0.0").parameters(parameters);

  using Plugin::Plugin;

  void activate(const Activation&) override {}
  Outcome process(const Job&) override { return Outcome::bypass; }
};

}  // namespace

CTXB_EXPORT_PLUGINS(Grade)
