// SPDX-License-Identifier: Apache-2.0
#include "runner.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <thread>

#include "guardian.hpp"
#include "json/document.hpp"
#include "ladder.hpp"
#include "process/process.hpp"
#include "rig.hpp"

namespace ctxbroker::validate {
namespace {

// Stands in front of the result, which is the last line of a child's output.
constexpr std::string_view marker = "\n@ctxb-validate ";
constexpr std::string_view error_prefix = "ctxb-validate: error: ";

bool is_about_the_machine(ErrorKind kind) {
  return kind == ErrorKind::no_driver || kind == ErrorKind::no_device ||
         kind == ErrorKind::driver_choice;
}

Outcome outcome_of(const std::string& name) {
  for (const Outcome outcome : {Outcome::pass, Outcome::fail, Outcome::skip}) {
    if (name == to_string(outcome)) return outcome;
  }
  return Outcome::crash;
}

std::string last_lines(const std::string& text) {
  std::size_t at = text.size();
  for (int lines = 0; at > 0 && lines < 12; --at) {
    if (text[at - 1] == '\n') ++lines;
  }
  return text.substr(at);
}

bool is_wanted(const Options& options, const Test& test) {
  if (options.only.empty()) return test.strictness <= options.strictness;
  return std::any_of(options.only.begin(), options.only.end(), [&](const std::string& one) {
    return std::string_view(test.id).substr(0, one.size()) == one;
  });
}

// The milestone that has to pass before a test with these needs says anything.
const Test* milestone_of(Needs needs) {
  switch (needs) {
    case Needs::nothing:
      return nullptr;
    case Needs::load:
      return find_test("load.loads");
    case Needs::create:
      return find_test("life.create");
    case Needs::activate:
      return find_test("life.activate");
    case Needs::process:
      return find_test("life.process");
  }
  return nullptr;
}

bool is_milestone(const Test& test) {
  for (const Needs needs : {Needs::load, Needs::create, Needs::activate, Needs::process}) {
    if (milestone_of(needs) == &test) return true;
  }
  return false;
}

Result skipped(const Test& test, const std::string& plugin, std::string why) {
  Result result;
  result.test = &test;
  result.plugin = plugin;
  result.outcome = Outcome::skip;
  result.text = std::move(why);
  return result;
}

struct Plugin {
  std::string id;
  std::string why_not{};  // it cannot run on this machine
};

std::vector<Plugin> plugins_of(const Options& options, const Result& load) {
  std::vector<Plugin> found;
  std::string there;
  for (const auto& one : load.notes.value("plugins", nlohmann::json::array())) {
    const auto id = one.at("id").get<std::string>();
    const std::string short_name = id.substr(id.rfind('.') + 1);
    there += (there.empty() ? "" : ", ") + id;
    const auto& wanted = options.plugins;
    if (wanted.empty() || std::count(wanted.begin(), wanted.end(), id) != 0 ||
        std::count(wanted.begin(), wanted.end(), short_name) != 0) {
      found.push_back({id, one.at("why_not").get<std::string>()});
    }
  }
  if (found.empty() && !there.empty()) {
    throw CannotRun("the library has no plug-in \"" + options.plugins.front() + "\"; it has " +
                    there);
  }
  return found;
}

// Fills `results` with what `run` gives for each index, several at once.
void at_once(unsigned jobs, std::size_t count, const std::function<void(std::size_t)>& run) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) run(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

// All wanted tests of one scope, for a plug-in or the library. `earlier` has the milestones.
std::vector<Result> run_scope(const Options& options, Scope scope, const Plugin& plugin,
                              std::map<const Test*, Result>& milestones) {
  std::vector<const Test*> wanted;
  for (const Test& test : ladder()) {
    if (test.scope == scope && is_wanted(options, test)) wanted.push_back(&test);
  }
  std::vector<Result> results(wanted.size());
  const auto run = [&](std::size_t i) {
    const Test& test = *wanted[i];
    if (!plugin.why_not.empty()) {
      results[i] = skipped(test, plugin.id, plugin.why_not);
      return;
    }
    const auto before = milestones.find(milestone_of(test.needs));
    if (before != milestones.end() && before->second.outcome != Outcome::pass) {
      results[i] = skipped(test, plugin.id,
                           std::string("it says nothing before ") + before->first->id + " passes");
      return;
    }
    results[i] = run_in_child(options, test, plugin.id);
  };
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!is_milestone(*wanted[i])) continue;
    const auto done = milestones.find(wanted[i]);
    if (done != milestones.end()) {
      results[i] = done->second;
    } else {
      run(i);
      milestones[wanted[i]] = results[i];
    }
  }
  at_once(options.jobs, wanted.size(), [&](std::size_t i) {
    if (!is_milestone(*wanted[i])) run(i);
  });
  return results;
}

}  // namespace

Answer run_here(const Test& test, Trial& trial) {
  try {
    if (test.applies.to != nullptr && !test.applies.to(Rig(trial).plugin())) {
      throw Skipped(std::string("the rule is for ") + test.applies.text);
    }
    test.run(trial);
    return {};
  } catch (const Skipped& why) {
    return {Outcome::skip, why.what()};
  } catch (const Failed& why) {
    return {Outcome::fail, why.what()};
  } catch (const Error& error) {
    if (is_about_the_machine(error.kind())) throw CannotRun(error.what());
    return {error.kind() == ErrorKind::needs_gpu ? Outcome::skip : Outcome::fail, error.what()};
  }
}

void tell_parent(const Answer& answer, const Trial& trial) {
  const nlohmann::json told{
      {"outcome", to_string(answer.outcome)}, {"text", answer.text}, {"notes", trial.notes}};
  const std::string line = told.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  std::printf("%.*s%s\n", static_cast<int>(marker.size()), marker.data(), line.c_str());
  std::fflush(stdout);
}

Result run_in_child(const Options& options, const Test& test, const std::string& plugin) {
  std::vector<std::string> arguments{options.file.string(), "--child",
                                     std::string(test.id) + ":" + std::to_string(options.seed)};
  if (!plugin.empty()) arguments.insert(arguments.end(), {"--plugin", plugin});
  if (!options.driver.empty()) arguments.insert(arguments.end(), {"--driver", options.driver});
  Result result;
  result.test = &test;
  result.plugin = plugin;
  const auto begin = std::chrono::steady_clock::now();
  const detail::ProcessExit end =
      detail::run_process("/proc/self/exe", arguments, options.deadline);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const std::size_t at = end.output.rfind(marker);
  const bool has_told = at != std::string::npos;
  if (has_told) {
    // A plug-in can write such a line too.
    const auto told = json::parsed(std::string_view(end.output).substr(at + marker.size()));
    if (told && told->is_object()) {
      const auto text = [&told](const char* name) {
        const auto found = told->find(name);
        return found != told->end() && found->is_string() ? found->get<std::string>() : "";
      };
      result.outcome = outcome_of(text("outcome"));
      result.text = text("text");
      result.notes = told->value("notes", json::Json::object());
    }
  }
  if (end.exit_status == 4 && !has_told) {
    const std::size_t from = end.output.rfind(error_prefix);
    throw CannotRun(from == std::string::npos ? last_lines(end.output)
                                              : end.output.substr(from + error_prefix.size()));
  }
  const std::string when = has_told ? ", after the test, while the process ended" : "";
  if (end.timed_out) {
    result.outcome = Outcome::hang;
    result.text = "it did not end within " + std::to_string(options.deadline.count()) + " s" + when;
  } else if (end.signal != 0) {
    result.outcome = Outcome::crash;
    result.text = std::string("a signal ended the process: ") + ::strsignal(end.signal) + when;
  } else if (has_told && end.exit_status == left_processes) {
    result.outcome = Outcome::fail;
    result.text = "it left processes behind, which were ended";
  } else if (!has_told) {
    result.outcome = Outcome::crash;
    result.text = "the process ended by itself in the middle of the test, with status " +
                  std::to_string(end.exit_status);
  }
  if (result.outcome == Outcome::crash || result.outcome == Outcome::hang) {
    result.output = last_lines(end.output);
  }
  return result;
}

std::vector<Result> run_ladder(const Options& options,
                               const std::function<void(const Result&)>& done) {
  std::vector<Result> all;
  const auto keep = [&](std::vector<Result> results) {
    for (Result& one : results) {
      done(one);
      all.push_back(std::move(one));
    }
  };
  std::map<const Test*, Result> of_file;  // it has no milestones
  keep(run_scope(options, Scope::file, {}, of_file));
  // This test runs whatever tests are wanted, because it finds the plug-ins.
  std::map<const Test*, Result> of_library;
  const Test* const loads = find_test("load.loads");
  of_library[loads] = run_in_child(options, *loads, "");
  keep(run_scope(options, Scope::library, {}, of_library));
  for (const Plugin& plugin : plugins_of(options, of_library[loads])) {
    std::map<const Test*, Result> milestones{{loads, of_library[loads]}};
    keep(run_scope(options, Scope::plugin, plugin, milestones));
  }
  return all;
}

std::string reproduce_line(const Options& options, const Result& result) {
  std::string line = "ctxb-validate " + options.file.string() + " --reproduce " + result.test->id +
                     ":" + std::to_string(options.seed);
  if (!result.plugin.empty()) line += " --plugin " + result.plugin;
  if (!options.driver.empty()) line += " --driver " + options.driver;
  return line;
}

}  // namespace ctxbroker::validate
