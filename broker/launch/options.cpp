// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <sstream>
#include <string_view>

#include "ctxbroker/version.hpp"
#include "exit_code.hpp"
#include "settings.hpp"
#include "text/suggestion.hpp"
#include "text/tenant_name.hpp"

namespace ctxbroker::launch {
namespace {

constexpr const char* footer =
    "The driver refuses every call that would destroy what all libraries of the program share,\n"
    "such as cudaDeviceReset. With --policy, --tenant or --each, each tenant gets a lease of its\n"
    "own. Its resets then succeed, and change nothing for the others. The broker opens when the\n"
    "program first calls the driver. If it never does, it runs as it would without ctxb-run.\n"
    "\n"
    "The exit code is the program's own. If ctxb-run does not start the program, or ends it\n"
    "before its first call of the driver, standard error says why, and the code is one of these:\n"
    "  125  ctxb-run failed: the options, the policy, a file, the driver or the broker\n"
    "  126  the program cannot be executed, or cannot be protected\n"
    "  127  there is no such program";

// Breaks a text into lines of at most so many characters.
std::string wrapped(const std::string& text, std::size_t most) {
  std::string lines, line;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > most) {
      lines += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return lines + line;
}

// CLI11's own usage does not know of the program, and its lines have no end.
class Formatter : public CLI::Formatter {
 public:
  Formatter() { column_width(24); }
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: ctxb-run [OPTIONS] PROGRAM [ARGUMENTS]\n";
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(option->get_description(), 72);
  }
};

struct Raw {
  std::vector<std::string> tenants;
  std::string log, driver, children;
};

// Declares the options in front of the program.
void declare(CLI::App& app, Options& options, Raw& raw) {
  app.add_option("--policy", options.policy,
                 "JSON file that assigns libraries to tenants. It can also set the leases, budgets "
                 "and limits of the tenants")
      ->type_name("FILE");
  app.add_option("--tenant", raw.tenants,
                 "Give the libraries whose real path matches PATTERN to the tenant NAME, such as "
                 "torch=*/torch/lib/*.so*. LEASE is auto, shared, private, green or green:N. "
                 "Repeat the option for more patterns. The first pattern that matches a library "
                 "decides. Patterns of --tenant are tried before those of --policy")
      ->type_name("NAME=PATTERN[@LEASE]")
      ->allow_extra_args(false);
  app.add_flag("--each", options.each, "Make each package that contains CUDA code a tenant");
  app.add_option("--report", options.report,
                 "Write a report (JSON) to this file, and complete it when the program exits")
      ->type_name("FILE");
  app.add_option("--trace", options.trace,
                 "Write a timeline to this file when the program exits. ui.perfetto.dev opens it")
      ->type_name("FILE");
  app.add_option(
         "--log", raw.log,
         "Print the broker's records of this level and above to standard error: debug, info, "
         "warning or error. Default: none")
      ->type_name("LEVEL");
  app.add_option("--driver", raw.driver,
                 "CUDA driver: nvidia, software, or auto (software where NVIDIA's has no device). "
                 "Default: CTXBROKER_DRIVER, else nvidia")
      ->type_name("NAME");
  app.add_option(
         "--children", raw.children,
         "Whether to cover the other processes that the program starts too. A program that the "
         "first process becomes with exec is always covered. Default: yes")
      ->type_name("yes|no");
  app.add_flag("-v,--verbose", options.verbose,
               "Print the summary at exit even if nothing was refused or lost");
  app.add_flag("--check", options.check,
               "Print what a run would do and what it cannot prevent. Do not run the program");
  app.set_version_flag("--version", std::string("ctxb-run ") + version());
  app.footer(footer);
}

struct KnownOption {
  std::string_view name;
  bool takes_value;
};
constexpr std::array known_options{
    KnownOption{"--policy", true},   KnownOption{"--tenant", true},   KnownOption{"--each", false},
    KnownOption{"--report", true},   KnownOption{"--trace", true},    KnownOption{"--log", true},
    KnownOption{"--driver", true},   KnownOption{"--children", true}, KnownOption{"-v", false},
    KnownOption{"--verbose", false}, KnownOption{"--check", false},   KnownOption{"-h", false},
    KnownOption{"--help", false},    KnownOption{"--version", false}};

[[noreturn]] void refuse(const std::string& text) {
  throw Failure(ExitCode::failed, text + "; see ctxb-run --help");
}

// " (did you mean "x"?)", or nothing.
std::string guess(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string near = detail::nearest(word, candidates);
  return near.empty() ? "" : " (did you mean \"" + near + "\"?)";
}

// The number of arguments in front of the program. Everything after it is the program's.
int count_own(int argc, const char* const* argv) {
  int at = 1;
  while (at < argc) {
    const std::string_view word = argv[at];
    if (word == "--" || word.size() < 2 || word[0] != '-') break;
    const std::string_view name = word.substr(0, word.find('='));
    const auto* const known = std::find_if(known_options.begin(), known_options.end(),
                                           [&](const auto& one) { return one.name == name; });
    if (known == known_options.end()) {
      std::vector<std::string> names;
      names.reserve(known_options.size());
      for (const KnownOption& one : known_options) names.emplace_back(one.name);
      refuse("there is no option " + std::string(name) + guess(std::string(name), names) +
             "; write options of the program after its name");
    }
    at += known->takes_value && name.size() == word.size() ? 2 : 1;
  }
  return std::min(at, argc);
}

std::optional<DriverChoice> driver_from(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto choice = parse_driver_choice(text);
  if (!choice) {
    refuse("--driver: \"" + text + "\" names no driver" +
           guess(text, {"auto", "nvidia", "software"}) + "; use auto, nvidia or software");
  }
  return choice;
}

std::optional<Severity> severity_from(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto severity = parse_severity(text);
  if (!severity) {
    refuse("--log: \"" + text + "\" is not a level" +
           guess(text, {"debug", "info", "warning", "error"}) +
           "; use debug, info, warning or error");
  }
  return severity;
}

bool children_from(const std::string& text) {
  if (text.empty() || text == "yes") return true;
  if (text != "no") refuse("--children: write yes or no, not \"" + text + "\"");
  return false;
}

}  // namespace

TenantOption parse_tenant(const std::string& text) {
  const std::string where = "--tenant: \"" + text + "\"";
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) {
    refuse(where + " has no \"=\"; write NAME=PATTERN, such as \"torch=*/torch/lib/*.so*\"");
  }
  TenantOption tenant;
  tenant.name = text.substr(0, equals);
  tenant.glob = text.substr(equals + 1);
  if (!detail::is_tenant_name(tenant.name)) {
    refuse(where + ": \"" + tenant.name +
           "\" is not a tenant's name; a name looks like torch or com.example.name and consists of "
           "letters, digits, '-', '_' and '.'");
  }
  if (tenant.name == "host") {
    refuse(where + ": \"host\" stands for all code that belongs to no tenant; use another name");
  }
  // A path may have a '@' too. A lease has no character that is special in paths and patterns.
  if (const std::size_t at = tenant.glob.rfind('@'); at != std::string::npos) {
    const std::string lease = tenant.glob.substr(at + 1);
    tenant.lease = parse_lease_choice(lease);
    if (tenant.lease) {
      tenant.glob.resize(at);
    } else if (lease.find_first_of("/.*?[") == std::string::npos) {
      refuse(where + ": \"" + lease + "\" is not a lease" +
             guess(lease, {"auto", "shared", "private", "green"}) +
             "; use auto, shared, private, green, or green:N with N above 0");
    }
  }
  if (tenant.glob.empty()) refuse(where + " has no pattern after the \"=\"");
  if (tenant.glob.find_first_of("/*?[") != 0) {
    refuse(where +
           ": the pattern can match no library, because real paths begin with \"/\"; write "
           "\"*/" +
           tenant.glob + "\"");
  }
  return tenant;
}

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options options;
  Raw raw;
  CLI::App app(
      "Runs a program in which libraries share a CUDA device, and keeps them from harming\n"
      "each other. The program needs no change.",
      "ctxb-run");
  declare(app, options, raw);
  app.formatter(std::make_shared<Formatter>());
  const int own = count_own(argc, argv);
  try {
    app.parse(own, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // help or version: CLI11 prints it
      app.exit(error);
      return std::nullopt;
    }
    refuse(error.what());
  }
  for (const char* const file : {"--policy", "--report", "--trace"}) {
    const CLI::Option& option = *app.get_option(file);
    if (option.count() > 0 && option.as<std::string>().empty()) {
      refuse(std::string(file) + ": the file's name is empty");
    }
  }
  options.log = severity_from(raw.log);
  options.driver = driver_from(raw.driver);
  options.children = children_from(raw.children);
  for (const std::string& one : raw.tenants) options.tenants.push_back(parse_tenant(one));
  options.command.assign(argv + own, argv + argc);
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  }
  if (options.command.empty()) refuse("a program is missing");
  return options;
}

}  // namespace ctxbroker::launch
