// SPDX-License-Identifier: Apache-2.0
// The smallest host: loads a plug-in library with the installed broker and names what is in it.
#include <cstdio>
#include <ctxbroker/boost_log.hpp>
#include <ctxbroker/broker.hpp>
#include <ctxbroker/error.hpp>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: tiny_host PLUGIN-LIBRARY\n", stderr);
    return 2;
  }
  try {
    ctxbroker::BrokerOptions options;
    options.records = ctxbroker::boost_log::sink();
    ctxbroker::Broker broker = ctxbroker::Broker::open(options);
    const ctxbroker::PluginLibrary library = broker.load(argv[1]);
    for (const auto& plugin : library.plugins()) {
      std::printf("%s on %s\n", plugin.id.c_str(), broker.devices().front().name.c_str());
    }
  } catch (const ctxbroker::Error& error) {
    std::fprintf(stderr, "tiny_host: %s\n", error.what());
    return 1;
  }
  return 0;
}
