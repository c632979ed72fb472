// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace ctxbroker::soak {
namespace {

nlohmann::json to_json(const Resources& resources) {
  return {{"device_bytes_free", resources.device_bytes_free},
          {"threads", resources.threads},
          {"descriptors", resources.descriptors},
          {"resident_bytes", resources.resident_bytes}};
}

}  // namespace

void print_line(std::FILE* output, const Tally& tally, double seconds, const Resources& now) {
  std::fprintf(
      output,
      "%6.1f s: %llu jobs, %llu wrong outputs, %llu unexpected errors, %llu losses forced, "
      "%llu rebuilt, %llu attacks, %llu resets absorbed, %llu strikes, %llu opened, "
      "%llu unloaded; device %.0f MiB free, %zu threads, %zu descriptors, %.0f MiB resident\n",
      seconds, static_cast<unsigned long long>(tally.jobs),
      static_cast<unsigned long long>(tally.wrong_outputs),
      static_cast<unsigned long long>(tally.unexpected),
      static_cast<unsigned long long>(tally.losses), static_cast<unsigned long long>(tally.rebuilt),
      static_cast<unsigned long long>(tally.attacks), static_cast<unsigned long long>(tally.resets),
      static_cast<unsigned long long>(tally.strikes), static_cast<unsigned long long>(tally.opened),
      static_cast<unsigned long long>(tally.unloaded),
      static_cast<double>(now.device_bytes_free) / (1 << 20), now.threads, now.descriptors,
      static_cast<double>(now.resident_bytes) / (1 << 20));
}

void print_report(std::FILE* output, const Options& options, const Tally& tally,
                  const Course& course) {
  const Tally::Errors errors = tally.errors();
  std::fprintf(output, "expected:\n");
  for (const auto& [kind, count] : errors.expected) {
    std::fprintf(output, "  %8llu x %s\n", static_cast<unsigned long long>(count), kind.c_str());
  }
  std::fprintf(output, "unexpected:%s\n", errors.unexpected.empty() ? " nothing" : "");
  for (const auto& [kind, count] : errors.unexpected) {
    std::fprintf(output, "  %8llu x %s\n", static_cast<unsigned long long>(count), kind.c_str());
  }
  for (const auto& text : errors.texts) std::fprintf(output, "  %s\n", text.c_str());
  std::fprintf(output, "the broker said:\n");
  for (const auto& [text, count] : errors.records) {
    std::fprintf(output, "  %8llu x %s\n", static_cast<unsigned long long>(count), text.c_str());
  }
  std::fprintf(output, "before: ");
  print_line(output, tally, 0, course.before);
  std::fprintf(output, "after:  ");
  print_line(output, tally, options.seconds, course.after);
}

void write_report(const Options& options, const Tally& tally, const Course& course) {
  const Tally::Errors errors = tally.errors();
  const nlohmann::json all{{"schema", "ctxbroker.soak/1"},
                           {"plugins", options.plugins},
                           {"seconds", options.seconds},
                           {"seed", options.seed},
                           {"threads", course.threads},
                           {"link_modes", course.modes},
                           {"with_broker", !options.without_broker},
                           {"jobs", tally.jobs.load()},
                           {"wrong_outputs", tally.wrong_outputs.load()},
                           {"losses", tally.losses.load()},
                           {"green_losses", tally.green_losses.load()},
                           {"rebuilt", tally.rebuilt.load()},
                           {"attacks", tally.attacks.load()},
                           {"resets_absorbed", tally.resets.load()},
                           {"strikes", tally.strikes.load()},
                           {"opened", tally.opened.load()},
                           {"unloaded", tally.unloaded.load()},
                           {"expected", errors.expected},
                           {"unexpected", errors.unexpected},
                           {"records", errors.records},
                           {"before", to_json(course.before)},
                           {"after", to_json(course.after)}};
  std::ofstream file(options.json);
  file << all.dump(2) << '\n';
  if (!file.flush()) throw std::runtime_error("\"" + options.json + "\" cannot be written");
}

}  // namespace ctxbroker::soak
