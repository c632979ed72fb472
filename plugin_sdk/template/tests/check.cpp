// SPDX-License-Identifier: Apache-2.0
// A small host for the tests: one picture, or one block of sound, goes through a plug-in.
//
//   check LIBRARY image|audio INPUT... is OUTPUT... [with PARAMETER=VALUE...]
//
// Ends with 0 if the output is as expected, 1 if not, and 77 if the plug-in needs a GPU and there
// is none.
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ctxbroker/broker.hpp>
#include <ctxbroker/error.hpp>
#include <ctxbroker/graph.hpp>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Case {
  std::string library;
  bool image = false;
  std::vector<float> input, output;
  std::vector<std::string> settings;
};

Case read_arguments(const std::vector<std::string>& words) {
  if (words.size() < 5) throw std::runtime_error("too few arguments");
  Case result;
  result.library = words[0];
  result.image = words[1] == "image";
  std::size_t at = 2;
  while (at < words.size() && words[at] != "is") result.input.push_back(std::stof(words[at++]));
  for (++at; at < words.size() && words[at] != "with"; ++at)
    result.output.push_back(std::stof(words[at]));
  for (++at; at < words.size(); ++at) result.settings.push_back(words[at]);
  const std::size_t samples = result.image ? 4 : 1;
  if (result.input.size() != samples || result.output.size() != samples)
    throw std::runtime_error("an image has four numbers, a sound has one");
  return result;
}

int check(const Case& wanted) {
  ctxbroker::Broker broker = ctxbroker::Broker::open();
  ctxbroker::PluginLibrary library = broker.load(wanted.library);
  ctxbroker::PluginInstance plugin = broker.create(library, library.plugins().front().id);
  for (const std::string& setting : wanted.settings) {
    const std::size_t equals = setting.find('=');
    const std::string name = setting.substr(0, equals);
    plugin.set_parameter(name, plugin.from_text(name, setting.substr(equals + 1)));
  }
  // Odd sizes: many mistakes show only there.
  ctxbroker::ActivationSizes sizes;
  sizes.max_width = 331;
  sizes.max_height = wanted.image ? 17 : 2;
  sizes.sample_rate = wanted.image ? 0 : 48000;
  plugin.activate(sizes);
  ctxbroker::Graph graph(broker, {&plugin}, sizes);

  ctxbroker::JobInfo job;
  job.width = sizes.max_width;
  job.height = sizes.max_height;
  job.sample_rate = sizes.sample_rate;
  const std::size_t step = wanted.input.size();
  std::vector<float> in(std::size_t{job.width} * job.height * step), out(in.size(), -1);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = wanted.input[i % step];
  graph.process(in.data(), out.data(), job);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!(std::fabs(out[i] - wanted.output[i % step]) <= 1e-5F)) {
      std::printf("number %zu of the output is %g; expected %g\n", i, static_cast<double>(out[i]),
                  static_cast<double>(wanted.output[i % step]));
      return 1;
    }
  }
  std::printf("%s: ok on %s\n", plugin.description().name.c_str(),
              broker.devices().front().name.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return check(read_arguments({argv + 1, argv + argc}));
  } catch (const ctxbroker::Error& error) {
    std::fprintf(stderr, "check: %s\n", error.what());
    return error.kind() == ctxbroker::ErrorKind::needs_gpu ? 77 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "check: %s\n", error.what());
    return 2;
  }
}
