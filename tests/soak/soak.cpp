// Many plug-ins for minutes: each a library of its own, some of which misbehave, while the host
// forces losses, closes and reopens tenants, loads and unloads libraries. Nothing that one of them
// does may reach another.
//
//   soak --plugins 64 --seconds 480 --seed 1 --json soak.json
//
// Status 0: no output was wrong, no error unexpected, everything given back; 1: one was; 2: wrong
// arguments; 3: a thread did not go on.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "ctxbroker/broker.hpp"
#include "driver_by_name.hpp"
#include "process_state.hpp"
#include "resources.hpp"
#include "seat.hpp"
#include "tally.hpp"
#include "test_library.hpp"
#include "watch.hpp"

namespace ctxbroker::soak {
namespace {

namespace fs = std::filesystem;
using Clock = Watch::Clock;
using Seconds = std::chrono::duration<double>;

struct Options {
  int plugins = 64;
  double seconds = 480;
  double patience = 120;  // for one step of a thread
  int device = 0;
  unsigned seed = 1;
  unsigned threads = 0;  // 0: more than there are cores
  std::string json;
  std::vector<std::string> modes;  // empty: all that there are
  bool without_broker = false;
  bool behaved = false;
  bool stuck = false;
};

// Standard output belongs to this program alone: the attacks print what each of them returned.
std::FILE* take_output() {
  std::FILE* own = fdopen(dup(STDOUT_FILENO), "w");
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (own == nullptr || nowhere < 0) throw std::runtime_error("standard output cannot be had");
  dup2(nowhere, STDOUT_FILENO);
  close(nowhere);
  setvbuf(own, nullptr, _IOLBF, BUFSIZ);
  return own;
}

// NVIDIA's runtime library takes no other driver than NVIDIA's.
bool with_runtime_library() {
#ifdef SOAK_WITH_RUNTIME_LIBRARY
  return !driver_is_software();
#else
  return false;
#endif
}

// A folder of copies: as many libraries, each with variables of its own, as there are plug-ins.
class Copies {
 public:
  explicit Copies(const Options& options) {
    const std::string prefix = "attacks_";
    for (const auto& entry : fs::directory_iterator(test_library(prefix).parent_path())) {
      const std::string name = entry.path().stem().string();
      if (!name.starts_with(prefix) || entry.path().extension() != ".so") continue;
      const bool wanted = options.modes.empty()
                              ? with_runtime_library() || !is_by_runtime(name)
                              : std::count(options.modes.begin(), options.modes.end(),
                                           name.substr(prefix.size())) > 0;
      if (wanted) originals_.push_back(entry.path());
    }
    std::sort(originals_.begin(), originals_.end());
    if (originals_.empty())
      throw std::runtime_error("there is no test library of such a link mode");
    std::string name = (fs::temp_directory_path() / "ctxbroker_soak.XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder can be made: " + name);
    folder_ = name;
    for (int i = 0; i < options.plugins; ++i) fs::copy_file(original(i), path(i));
  }
  ~Copies() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  fs::path path(int plugin) const {
    return folder_ / (std::to_string(plugin) + "_" + original(plugin).filename().string());
  }
  std::size_t modes() const { return originals_.size(); }
  static bool is_by_runtime(const std::string& library) {
    return library.find("attacks_runtime_") != std::string::npos;
  }

 private:
  const fs::path& original(int plugin) const {
    return originals_[static_cast<std::size_t>(plugin) % originals_.size()];
  }
  std::vector<fs::path> originals_;
  fs::path folder_;
};

// Which plug-in is what, by the seed: every kind with every link mode, sooner or later.
std::vector<SeatOptions> seating(const Options& options, const Copies& copies) {
  const LeaseChoice kinds[] = {LeaseKind::green, LeaseKind::shared, LeaseKind::private_own,
                               LeaseKind::green, LeaseKind::shared, LeaseKind::private_own,
                               LeaseKind::green, LeaseKind::green};
  constexpr int most_partitions = 6, most_context_makers = 3;
  std::vector<SeatOptions> seats(static_cast<std::size_t>(options.plugins));
  std::vector<std::size_t> order(seats.size());
  for (std::size_t i = 0; i < seats.size(); ++i) order[i] = i;
  Random random(options.seed);
  std::shuffle(order.begin(), order.end(), random);
  int partitions = 0, makers = 0;
  for (std::size_t i = 0; i < seats.size(); ++i) {
    SeatOptions& seat = seats[order[i]];
    seat.number = static_cast<int>(order[i]);
    seat.library = copies.path(seat.number);
    seat.by_runtime = Copies::is_by_runtime(seat.library.filename().string());
    seat.device = options.device;
    seat.lease = kinds[i % std::size(kinds)];
    if (i % 8 == 7 && partitions++ < most_partitions) seat.lease.multiprocessors = 8;
    seat.misbehaves = (random() % 3 == 0 || i == 0) && !options.behaved;
    seat.makes_contexts = seat.misbehaves && makers++ < most_context_makers;
    seat.unloads = random() % 2 == 0;
  }
  return seats;
}

struct Soak {
  Soak(const Options& its_options, std::FILE* its_output)
      : options(its_options), output(its_output), copies(options) {}

  const Options options;
  std::FILE* const output;
  const Copies copies;
  std::optional<Broker> broker;
  std::optional<Tenant> host;
  CUcontext primary = nullptr;  // without a broker: everybody's
  std::mutex main;
  Tally tally;
  std::vector<std::unique_ptr<Seat>> seats;
  Resources before, after;
};

Resources look(Soak& soak) {
  if (!soak.host) return resources();
  return soak.host->run(soak.options.device, [] { return resources(); });
}

void start(Soak& soak) {
  if (!soak.options.without_broker) {
    BrokerOptions wanted;
    wanted.host_name = "soak";
    wanted.records = [&tally = soak.tally](const Record& record) {
      if (record.severity >= Severity::warning) tally.record(record.topic, record.text);
    };
    soak.broker.emplace(Broker::open(std::move(wanted)));
    const GateInfo gate = soak.broker->gate();
    if (!gate.in_force) throw std::runtime_error("the gate is not in force: " + gate.reason);
    soak.host.emplace(soak.broker->host());
  } else if (driver_call("cuInit", 0U) != CUDA_SUCCESS ||
             driver_call("cuDevicePrimaryCtxRetain", &soak.primary, soak.options.device) !=
                 CUDA_SUCCESS ||
             driver_call("cuCtxSetCurrent", soak.primary) != CUDA_SUCCESS) {
    throw std::runtime_error("there is no device");
  }
  for (SeatOptions& seat : seating(soak.options, soak.copies)) {
    soak.seats.push_back(std::make_unique<Seat>(
        std::move(seat), soak.broker ? &*soak.broker : nullptr, soak.main, soak.tally));
  }
}

// What is made once in a process is no drift: each plug-in has had a life before the first look.
void warm_up(Soak& soak) {
  Random random(soak.options.seed);
  for (const auto& seat : soak.seats) {
    seat->open();
    for (int i = 0; i < 2; ++i) seat->job(random);
    if (!soak.options.without_broker) seat->close();
  }
  soak.before = look(soak);
  if (soak.options.without_broker) return;
  for (const auto& seat : soak.seats) seat->open();
}

void take_turns(Soak& soak, Watch& watch, std::size_t thread, Clock::time_point end) {
  Random random(soak.options.seed + 1 + static_cast<unsigned>(thread));
  if (soak.primary != nullptr) driver_call("cuCtxSetCurrent", soak.primary);
  if (soak.options.stuck && thread == 0) {
    watch.stands(thread, "never returns", 0);
    for (;;) pause();
  }
  const auto any_seat = [&]() -> Seat& { return *soak.seats[random() % soak.seats.size()]; };
  while (Clock::now() < end) {
    Seat& seat = any_seat();
    const unsigned dice = random() % 1000;
    if (seat.wants_reopening() || dice < 10) {
      watch.stands(thread, "reopens", seat.number());
      if (seat.close()) seat.open();
    } else if (dice < 40) {
      watch.stands(thread, "forces a loss", seat.number());
      seat.lose();
    } else if (dice < 400 && seat.misbehaves()) {
      watch.stands(thread, "attacks", seat.number());
      seat.attack(random, any_seat());
    } else {
      watch.stands(thread, "works", seat.number());
      seat.job(random);
    }
  }
  watch.leaves(thread);
}

void print_line(const Soak& soak, double seconds, const Resources& now) {
  const Tally& tally = soak.tally;
  std::fprintf(
      soak.output,
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

unsigned thread_count(const Options& options) {
  return options.threads != 0 ? options.threads
                              : std::max(6U, std::thread::hardware_concurrency() * 3 / 2);
}

void run(Soak& soak) {
  const unsigned count = thread_count(soak.options);
  const Seconds patience(soak.options.patience);
  Watch watch(
      count + 1, std::chrono::duration_cast<Clock::duration>(patience),
      std::chrono::duration_cast<Clock::duration>(Seconds(soak.options.seconds) + 2 * patience),
      fileno(soak.output));
  const std::size_t own = count;
  watch.stands(own, "warms up", -1);
  warm_up(soak);
  const auto begin = Clock::now();
  const auto end =
      begin + std::chrono::duration_cast<Clock::duration>(Seconds(soak.options.seconds));
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < count; ++thread) {
    threads.emplace_back([&soak, &watch, thread, end] { take_turns(soak, watch, thread, end); });
  }
  constexpr Seconds between_lines(10);
  while (Clock::now() < end) {
    watch.stands(own, "counts", -1);
    const Seconds left = end - Clock::now();
    std::this_thread::sleep_for(std::min(left, between_lines));
    const std::lock_guard main(soak.main);
    print_line(soak, Seconds(Clock::now() - begin).count(), look(soak));
  }
  watch.leaves(own);
  for (auto& thread : threads) thread.join();
  watch.stands(own, "closes all", -1);
  for (const auto& seat : soak.seats) {
    if (!seat->close()) soak.tally.wrong("close", "a thread is inside at the end");
  }
  settled_process_state(soak.before.threads);
  soak.after = look(soak);
}

// What is kept for good by design (modules of libraries that stay, pages of the driver's own) is
// bounded by the number of plug-ins; what each of many lives leaves is not.
void check_given_back(Soak& soak) {
  const auto plugins = static_cast<std::uint64_t>(soak.options.plugins);
  const std::uint64_t slack = (64 + 2 * plugins) << 20;
  constexpr std::size_t few = 4;
  const auto check = [&](const char* what, std::uint64_t before, std::uint64_t now,
                         std::uint64_t allowed) {
    if (now <= before + allowed) return;
    soak.tally.wrong("not given back", std::string(what) + ": " + std::to_string(before) +
                                           " before, " + std::to_string(now) + " after");
  };
  check("device memory", soak.after.device_bytes_free, soak.before.device_bytes_free, slack);
  check("threads", soak.before.threads, soak.after.threads, few);
  check("descriptors", soak.before.descriptors, soak.after.descriptors, few);
}

nlohmann::json to_json(const Resources& resources) {
  return {{"device_bytes_free", resources.device_bytes_free},
          {"threads", resources.threads},
          {"descriptors", resources.descriptors},
          {"resident_bytes", resources.resident_bytes}};
}

void report(Soak& soak) {
  const Tally& tally = soak.tally;
  const Tally::Errors errors = tally.errors();
  std::fprintf(soak.output, "expected:\n");
  for (const auto& [kind, count] : errors.expected) {
    std::fprintf(soak.output, "  %8llu x %s\n", static_cast<unsigned long long>(count),
                 kind.c_str());
  }
  std::fprintf(soak.output, "unexpected:%s\n", errors.unexpected.empty() ? " nothing" : "");
  for (const auto& [kind, count] : errors.unexpected) {
    std::fprintf(soak.output, "  %8llu x %s\n", static_cast<unsigned long long>(count),
                 kind.c_str());
  }
  for (const auto& text : errors.texts) std::fprintf(soak.output, "  %s\n", text.c_str());
  std::fprintf(soak.output, "the broker said:\n");
  for (const auto& [text, count] : errors.records) {
    std::fprintf(soak.output, "  %8llu x %s\n", static_cast<unsigned long long>(count),
                 text.c_str());
  }
  std::fprintf(soak.output, "before: ");
  print_line(soak, 0, soak.before);
  std::fprintf(soak.output, "after:  ");
  print_line(soak, soak.options.seconds, soak.after);
  if (soak.options.json.empty()) return;
  const nlohmann::json all{{"schema", "ctxbroker.soak/1"},
                           {"plugins", soak.options.plugins},
                           {"seconds", soak.options.seconds},
                           {"seed", soak.options.seed},
                           {"threads", thread_count(soak.options)},
                           {"link_modes", soak.copies.modes()},
                           {"with_broker", !soak.options.without_broker},
                           {"jobs", tally.jobs.load()},
                           {"wrong_outputs", tally.wrong_outputs.load()},
                           {"losses", tally.losses.load()},
                           {"rebuilt", tally.rebuilt.load()},
                           {"attacks", tally.attacks.load()},
                           {"resets_absorbed", tally.resets.load()},
                           {"strikes", tally.strikes.load()},
                           {"opened", tally.opened.load()},
                           {"unloaded", tally.unloaded.load()},
                           {"expected", errors.expected},
                           {"unexpected", errors.unexpected},
                           {"records", errors.records},
                           {"before", to_json(soak.before)},
                           {"after", to_json(soak.after)}};
  std::ofstream file(soak.options.json);
  file << all.dump(2) << '\n';
  if (!file.flush()) throw std::runtime_error("\"" + soak.options.json + "\" cannot be written");
}

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Many plug-ins for minutes, with resets and losses");
  app.add_option("--plugins", options.plugins, "copies of the test libraries")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds)->check(CLI::PositiveNumber);
  app.add_option("--patience", options.patience, "seconds that one step may take")
      ->check(CLI::PositiveNumber);
  app.add_option("--device", options.device)->check(CLI::NonNegativeNumber);
  app.add_option("--seed", options.seed);
  app.add_option("--threads", options.threads, "0: more than there are cores");
  app.add_option("--modes", options.modes, "link modes: dlsym,linked,... (all)")->delimiter(',');
  app.add_option("--json", options.json, "a file for the figures");
  app.add_flag("--without-broker", options.without_broker, "to see the damage");
  app.add_flag("--behaved", options.behaved, "nobody misbehaves");
  app.add_flag("--stuck", options.stuck, "one thread never returns, to see how that ends");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::FILE* const output = take_output();
  Soak soak(options, output);
  start(soak);
  std::fprintf(output, "%d plug-ins in %zu link modes, %u threads, seed %u, %s\n", options.plugins,
               soak.copies.modes(), thread_count(options), options.seed,
               soak.broker ? soak.broker->gate().reason.c_str() : "without a broker");
  run(soak);
  soak.seats.clear();
  if (soak.broker) {
    check_given_back(soak);
    soak.host.reset();
    soak.broker->close();
  }
  report(soak);
  return soak.tally.unexpected == 0 && soak.tally.jobs > 0 ? 0 : 1;
}

}  // namespace
}  // namespace ctxbroker::soak

int main(int argc, char** argv) {
  try {
    return ctxbroker::soak::main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "soak: %s\n", error.what());
    return 1;
  }
}
