// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <cstdlib>
#include <string_view>

#include "command_test.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

std::string test_tool(const std::string& name) {
  return program_folder().parent_path() / "test_plugins" / ("tool_" + name + ".so");
}

class ListCommand : public CommandTest {};
class DoctorCommand : public CommandTest {};

std::vector<std::string> names(const json& plugins) {
  std::vector<std::string> result;
  for (const json& plugin : plugins) result.push_back(plugin["short_name"]);
  return result;
}

TEST_F(ListCommand, NamesTheSamplesWithoutAnyDriver) {
  const Ended ended = run_well({"list", "--json"}, {{"CTXBROKER_DRIVER", "nvidia"}});
  const json list = json::parse(ended.output);
  EXPECT_EQ(list["schema"], "ctxbroker.sample_host.plugins/1");
  EXPECT_THAT(names(list["plugins"]), IsSupersetOf({"exposure", "blur", "unsharp", "colour_matrix",
                                                    "gain", "equaliser", "fir", "delay"}));
  for (const json& plugin : list["plugins"]) {
    if (plugin["short_name"] != "exposure") continue;
    EXPECT_EQ(plugin["id"], "org.ctxbroker.sample.exposure");
    EXPECT_EQ(plugin["media"], "image");
    const json& stops = plugin["parameters"][0];
    EXPECT_EQ(stops["id"], "stops");
    EXPECT_EQ(stops["unit"], "EV");
    EXPECT_LT(stops["minimum"], stops["maximum"]);
    EXPECT_EQ(stops["default"], 0.0);
  }
}

TEST_F(ListCommand, TextNamesParametersRangesAndUnits) {
  const Ended ended = run_well({"list"});
  for (const char* word :
       {"exposure", "org.ctxbroker.sample.exposure", "stops", "EV", " .. ", "default 0", "gain_db",
        "dB", "inputs: in (any channels)\n  outputs: bins (results of ",
        "key (any channels; side-chain; optional)", "mask (grey; float or half; optional)"}) {
    EXPECT_THAT(ended.output, HasSubstr(word));
  }
}

TEST_F(ListCommand, TwoPluginsWithOneIdAreBothNamed) {
  const auto sample = program_folder().parent_path() / "plugins" / "exposure.so";
  std::filesystem::create_directory(folder / "plugins");
  std::filesystem::copy_file(sample, folder / "plugins/older.so");
  const std::vector<std::string> both = {"--plugin-path", at("plugins")};
  const auto said = HasSubstr(
      "plug-in org.ctxbroker.sample.exposure is in \"" + at("plugins/older.so") +
      "\" (version 1.0.0), which is used because its folder is searched first, and in \"" +
      sample.string() + "\"");
  EXPECT_THAT(run({"list", both[0], both[1]}).errors, said);
  run_well({"list"});  // says nothing
  png("in.png", 2, 2);
  const std::vector<std::string> image = {"image",       at("in.png"), "-o",
                                          at("out.png"), both[0],      both[1]};
  const auto with = [&](const std::string& plugin) {
    std::vector<std::string> all = image;
    all.insert(all.end(), {"--plugin", plugin});
    const Ended ended = run(all);
    EXPECT_EQ(ended.exit_code, 0);
    return ended.errors;
  };
  EXPECT_THAT(with("exposure"), said);
  EXPECT_THAT(with("blur"), Not(HasSubstr("which is used"))) << "nobody asked for it";
}

TEST_F(ListCommand, ABadLibraryIsAWarningNotAnEnd) {
  std::filesystem::create_directory(folder / "plugins");
  write_bytes(folder / "plugins/text.so", "not a library\n");
  const Ended ended = run({"list", "--json", "--plugin-path", at("plugins")});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.errors, HasSubstr("text.so"));
  const json list = json::parse(ended.output);
  ASSERT_EQ(list["problems"].size(), 1U);
  EXPECT_THAT(list["problems"][0]["library"].get<std::string>(), HasSubstr("text.so"));
  EXPECT_GE(list["plugins"].size(), 8U);
}

// The libraries of the scan's own tests.
std::string harmful(const std::string& deed) {
  return program_folder().parent_path() / "test_plugins" / ("scan_" + deed + ".so");
}

TEST_F(ListCommand, ACrashingAndAHangingLibraryAreNamedAndHarmNobody) {
  std::filesystem::create_directory(folder / "plugins");
  std::filesystem::copy_file(harmful("crashes"), folder / "plugins/crashes.so");
  std::filesystem::copy_file(harmful("hangs"), folder / "plugins/hangs.so");
  const std::vector<std::string> where = {"--plugin-path", at("plugins"), "--scan-timeout", "700"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), where.begin(), where.end());
    return run(words, signals_stay_signals);  // a sanitizer's report would take longer
  };
  const json list = json::parse(with({"list", "--json"}).output);
  ASSERT_GE(list["libraries"].size(), 10U);
  EXPECT_EQ(list["libraries"][0]["state"], "crashed");
  EXPECT_EQ(list["libraries"][0]["strikes"], 1);
  EXPECT_EQ(list["libraries"][1]["state"], "hung");
  EXPECT_EQ(list["libraries"][2]["state"], "enabled");
  EXPECT_EQ(json::parse(with({"doctor", "--json"}).output)["problems"].size(), 2U);
  const Ended text = with({"list"});
  EXPECT_THAT(text.output, HasSubstr("crashed  " + at("plugins/crashes.so")));
  EXPECT_THAT(text.output, HasSubstr("hung  " + at("plugins/hangs.so") +
                                     "\n  loading it took longer than 700 ms; it is tried again"));
  EXPECT_THAT(text.errors, Not(HasSubstr("hangs.so"))) << "each problem is told once";
  png("in.png", 2, 2);
  EXPECT_EQ(with({"image", at("in.png"), "-o", at("out.png"), "-p", "exposure"}).exit_code, 0);
}

TEST_F(ListCommand, TheUserDisablesAndEnablesALibrary) {
  const auto states = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"list", "--json"});
    const json list = json::parse(run_well(words, {{"XDG_CONFIG_HOME", at("config")}}).output);
    for (const json& library : list["libraries"]) {
      const std::string path = library["path"];
      if (path.ends_with("/exposure.so")) return library["state"].get<std::string>();
    }
    return std::string();
  };
  EXPECT_EQ(states({"--disable", "exposure"}), "disabled");
  EXPECT_EQ(states({}), "disabled");
  png("in.png", 2, 2);
  const Ended refused = run({"image", at("in.png"), "-o", at("out.png"), "-p", "exposure"},
                            {{"XDG_CONFIG_HOME", at("config")}});
  EXPECT_EQ(refused.exit_code, static_cast<int>(ExitCode::plugin));
  EXPECT_THAT(refused.errors, HasSubstr("is disabled: the user has disabled it; sample_host list "
                                        "--enable enables it"));
  EXPECT_EQ(states({"--enable", "exposure.so"}), "enabled");
  EXPECT_EQ(run({"list", "--disable", "nothing"}).exit_code, static_cast<int>(ExitCode::usage));
}

// Code that the user has disabled must not run, and nobody is told to report a defect.
TEST_F(ListCommand, ADamagedListOfDisabledLibrariesEnablesNothing) {
  const Environment environment = {{"XDG_CONFIG_HOME", at("config")}};
  run({"list", "--disable", "exposure"}, environment);
  const auto list = folder / "config/ctxbroker/disabled.json";
  const std::string whole = read_bytes(list);
  ASSERT_THAT(whole, HasSubstr("exposure.so"));
  png("in.png", 2, 2);
  const auto expect_refusals = [&] {
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {"image", at("in.png"), "-o", at("out.png"), "-p", "exposure"},
             {"image", at("in.png"), "-o", at("out.png"), "-p", "exposure", "--isolate"},
             {"list", "--disable", "blur"},
             {"list", "--enable", "exposure"}}) {
      const Ended ended = run(words, environment);
      EXPECT_EQ(ended.exit_code, static_cast<int>(ExitCode::usage)) << ended.errors;
      EXPECT_THAT(ended.errors, HasSubstr("it cannot be told which libraries are disabled: list of "
                                          "disabled libraries \"" +
                                          list.string() + "\""));
      EXPECT_THAT(ended.errors, HasSubstr("mend this file, or remove it"));
      EXPECT_THAT(ended.errors, Not(HasSubstr("defect")));
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "out.png"));
    for (const char* command : {"list", "doctor"}) {
      const Ended shown = run({command, "--json"}, environment);
      EXPECT_EQ(shown.exit_code, 0);
      EXPECT_THAT(json::parse(shown.output)["plugins"], testing::IsEmpty());
      EXPECT_THAT(json::parse(shown.output)["warnings"].dump(), HasSubstr("cannot be told"));
    }
  };
  for (const std::size_t bytes : {whole.size() / 2, std::size_t{0}}) {
    write_bytes(list, whole.substr(0, bytes));
    expect_refusals();
    EXPECT_EQ(read_bytes(list), whole.substr(0, bytes));
  }
  std::filesystem::remove(list);
  std::filesystem::create_directory(list);
  expect_refusals();
  std::filesystem::remove(list);
  std::filesystem::create_symlink("nowhere", list);
  expect_refusals();
  std::filesystem::remove(list);
  ASSERT_EQ(::mkfifo(list.c_str(), 0600), 0);
  expect_refusals();
  std::filesystem::remove(list);
  run_well({"image", at("in.png"), "-o", at("out.png"), "-p", "exposure"}, environment);
}

TEST_F(ListCommand, SafeModeTakesManifestsOnly) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "plug-ins that are built with a sanitizer have no manifests";
#endif
  std::filesystem::create_directory(folder / "plugins");
  std::filesystem::copy_file(harmful("exits"), folder / "plugins/exits.so");
  const Ended ended = run({"list", "--safe", "--plugin-path", at("plugins")});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.output, HasSubstr("org.ctxbroker.sample.exposure"));
  EXPECT_THAT(ended.output, HasSubstr("safe mode"));
}

TEST_F(ListCommand, AFolderThatTheUserNamedMustExist) {
  const Ended ended = run({"list", "--plugin-path", at("nowhere")});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.errors, HasSubstr("nowhere\" is not a folder"));
}

TEST_F(ListCommand, FoldersOfTheEnvironmentAreSearched) {
  std::filesystem::create_directory(folder / "plugins");
  std::filesystem::copy_file(test_plugin("twins"), folder / "plugins/twins.so");
  const Ended ended = run_well({"list"}, {{"CTXBROKER_PLUGIN_PATH", at("plugins")}});
  EXPECT_THAT(ended.output, HasSubstr("org.ctxbroker.test.a.twin"));
}

TEST_F(ListCommand, TextNamesWhatLeaseAPluginWishes) {
  std::filesystem::create_directory(folder / "plugins");
  std::filesystem::copy_file(program_folder().parent_path() / "test_plugins/wishes.so",
                             folder / "plugins/wishes.so");
  const Ended ended = run_well({"list", "--plugin-path", at("plugins")});
  EXPECT_THAT(
      ended.output,
      HasSubstr(
          "  com.example.test.wishes_private\n  A plug-in for tests.\n  wishes a private lease\n"));
  EXPECT_THAT(ended.output, testing::Not(HasSubstr("wishes a auto")));
}

TEST_F(ListCommand, ListNamesPluginsThatNeedAGpu) {
  std::filesystem::create_directory(folder / "plugins");
  std::filesystem::copy_file(test_plugin("needs_gpu"), folder / "plugins/needs_gpu.so");
  const Environment environment = {{"CTXBROKER_PLUGIN_PATH", at("plugins")}};
  EXPECT_THAT(
      run_well({"list"}, environment).output,
      HasSubstr("Passes the image on.\n  needs a GPU: it works with NVIDIA's driver only\n"));
  const json list = json::parse(run_well({"list", "--json"}, environment).output);
  for (const json& plugin : list["plugins"]) {
    if (plugin["short_name"] == "broken") {
      EXPECT_EQ(plugin["needs_gpu"], true);
    }
    if (plugin["short_name"] == "exposure") {
      EXPECT_EQ(plugin["needs_gpu"], false);
    }
  }
}

TEST_F(DoctorCommand, DoctorTellsDriverDevicesAndProtections) {
  const Ended ended = run_well({"doctor", "--json"});
  const json doctor = json::parse(ended.output);
  EXPECT_EQ(doctor["schema"], "ctxbroker.sample_host.doctor/1");
  EXPECT_EQ(doctor["usable"], true);
  EXPECT_FALSE(doctor["driver"]["reason"].get<std::string>().empty());
  EXPECT_GE(doctor["devices"].size(), 1U);
  EXPECT_EQ(doctor["driver_error"], nullptr);
  std::vector<std::string> protections;
  for (const json& protection : doctor["protection"]) {
    protections.push_back(protection["name"]);
    if (protection["name"] == "gate") {
      EXPECT_EQ(protection["in_force"], true) << protection["text"];
      EXPECT_EQ(protection["mode"], "before_driver");
    }
    if (protection["name"] == "memory") {
      ASSERT_EQ(protection["devices"].size(), doctor["devices"].size());
      EXPECT_EQ(protection["devices"][0]["pools"], doctor["devices"][0]["memory_pools"]);
      EXPECT_EQ(protection["devices"][0]["pinned_pools"], doctor["devices"][0]["pinned_pools"]);
    }
  }
  EXPECT_THAT(protections, IsSupersetOf({"guards", "leases", "gate", "shield", "memory"}));
  EXPECT_GE(doctor["plugins"].size(), 8U);

  const Ended text = run_well({"doctor"});
  for (const char* word : {"driver", "why:", "devices", "guards", "gate: in force",
                           "memory: device 0: the driver has ", "plug-ins", "searched:"}) {
    EXPECT_THAT(text.output, HasSubstr(word));
  }
}

TEST_F(DoctorCommand, SaysThatAnMpsServerTakesTheIsolationAway) {
  Environment environment = {{"CTXBROKER_DRIVER", "software"},
                             {"CTXBROKER_SOFTWARE_MPS", "/run/own"},
                             {"CUDA_MPS_PIPE_DIRECTORY", "/run/own"}};
  const Ended text = run({"doctor"}, environment);
  EXPECT_THAT(text.output, HasSubstr("isolation from other processes"));
  EXPECT_THAT(text.errors, HasSubstr("[warning] host: this process uses device 0 through an MPS"));
  json doctor = json::parse(run({"doctor", "--json"}, environment).output);
  EXPECT_EQ(doctor["devices"][0]["mps"], true);
  EXPECT_THAT(doctor["missing"].dump(), HasSubstr("a fault of one of the server's clients"));
  environment.pop_back();
  doctor = json::parse(run_well({"doctor", "--json"}, environment).output);
  EXPECT_EQ(doctor["devices"][0]["mps"], false);
  EXPECT_THAT(doctor["missing"].dump(), Not(HasSubstr("MPS")));
}

// The preloaded driver has the same effect as a preloaded tool that needs the driver.
TEST_F(DoctorCommand, SaysWhatALateGateCannotHold) {
  const auto software = program_folder().parent_path() / "lib/ctxbroker/software_device";
  Environment environment = {{"LD_PRELOAD", "libcuda.so.1"},
                             {"ASAN_OPTIONS", "verify_asan_link_order=0"}};
  const char* driver = std::getenv("CTXBROKER_DRIVER");  // NOLINT(concurrency-mt-unsafe)
  if (driver == nullptr || std::string_view(driver) == "software") {
    environment.emplace_back("LD_LIBRARY_PATH", software.string());
  }
  const json doctor = json::parse(run_well({"doctor", "--json"}, environment).output);
  for (const json& protection : doctor["protection"]) {
    if (protection["name"] != "gate") continue;
    EXPECT_EQ(protection["in_force"], true) << protection["text"];
    EXPECT_EQ(protection["mode"], "late");
    EXPECT_THAT(protection["text"].get<std::string>(), HasSubstr("LD_PRELOAD names it"));
    EXPECT_THAT(protection["text"].get<std::string>(),
                HasSubstr("does not hold calls of their constructors, functions that constructors "
                          "or other libraries looked up for them"));
  }
  EXPECT_THAT(run_well({"doctor"}, environment).output, HasSubstr("gate: in force, but LATE: "));
}

TEST_F(DoctorCommand, SaysHowOldTheGateIs) {
  EXPECT_THAT(run_well({"doctor"}).output, HasSubstr("gate: knows the functions of CUDA 13."));
  // A driver that the gate's tests bring.
  const auto folder = program_folder().parent_path() / "newer_driver/lib/ctxbroker/software_device";
  if (!std::filesystem::exists(folder / "libcuda.so.1")) GTEST_SKIP() << "not built: " << folder;
  const Environment newer = {{"CTXBROKER_DRIVER", "nvidia"}, {"LD_LIBRARY_PATH", folder.string()}};
  EXPECT_THAT(
      run_well({"doctor"}, newer).output,
      HasSubstr("the driver is of CUDA 99.0, so the gate is OLDER THAN THE DRIVER. Calls of "
                "functions that it does not know are not held back: cuEventCreate_v2, "
                "cuNewerThanTheGate"));
  const json doctor = json::parse(run_well({"doctor", "--json"}, newer).output);
  for (const json& protection : doctor["protection"]) {
    if (protection["name"] != "gate") continue;
    EXPECT_EQ(protection["in_force"], true) << protection["text"];
    EXPECT_EQ(protection["unknown_functions"], json({"cuEventCreate_v2", "cuNewerThanTheGate"}));
  }
}

TEST_F(DoctorCommand, NamesToolsThatAreInTheProcess) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer begins with dlsym, before anybody else can stand in front of it";
#endif
  const std::string interposer = test_tool("interposer"), injected = test_tool("injected");
  const Environment environment = {{"LD_PRELOAD", interposer}, {"CUDA_INJECTION64_PATH", injected}};
  const Ended text = run_well({"doctor"}, environment);
  EXPECT_THAT(text.output, HasSubstr("gate: in force (in the process before the driver)"));
  EXPECT_THAT(text.output, HasSubstr("tool: " + interposer + " (LD_PRELOAD) stands in front of "));
  EXPECT_THAT(text.output,
              HasSubstr("tool: " + injected + " (CUDA_INJECTION64_PATH) is loaded by"));
  EXPECT_THAT(run_well({"doctor"}).output, testing::Not(HasSubstr("tool: ")));
}

TEST_F(DoctorCommand, ProbesThisMachineOnceAndKeepsTheResult) {
  const Environment environment = {{"XDG_CACHE_HOME", at("cache")}};
  const json first = json::parse(run_well({"doctor", "--probe", "--json"}, environment).output);
  EXPECT_EQ(first["probes"][0]["schema"], "ctxbroker.probe/1");
  EXPECT_EQ(first["probes"][0]["from_cache"], false);
  for (const json& answer : first["probes"][0]["answers"]) {
    EXPECT_THAT((std::vector<std::string>{"measured", "not-measured"}),
                testing::Contains(answer["outcome"].get<std::string>()))
        << answer;
  }
  const json second = json::parse(run_well({"doctor", "--probe", "--json"}, environment).output);
  EXPECT_EQ(second["probes"][0]["from_cache"], true);
  EXPECT_EQ(second["probes"][0]["answers"], first["probes"][0]["answers"]);
  const json again =
      json::parse(run_well({"doctor", "--probe", "--again", "--json"}, environment).output);
  EXPECT_EQ(again["probes"][0]["from_cache"], false);

  const Ended text = run_well({"doctor", "--probe"}, environment);
  for (const char* word :
       {"probe of device 0: ", "measured 2", "--again", "expected", "reset is refused"}) {
    EXPECT_THAT(text.output, HasSubstr(word));
  }
  EXPECT_EQ(json::parse(run_well({"doctor", "--json"}).output).contains("probes"), false);
}

TEST_F(DoctorCommand, ProbesOneDeviceOfEachModel) {
  const Environment environment = {{"XDG_CACHE_HOME", at("cache")},
                                   {"CTXBROKER_DRIVER", "software"},
                                   {"CTXBROKER_SOFTWARE_DEVICES", "3"}};
  const json found = json::parse(run_well({"doctor", "--probe", "--json"}, environment).output);
  ASSERT_EQ(found["probes"].size(), 1u);
  EXPECT_EQ(found["probes"][0]["devices"], (json{0, 1, 2}));
  const Ended text = run_well({"doctor", "--probe"}, environment);
  EXPECT_THAT(text.output, HasSubstr("probe of devices 0, 1, 2: "));
}

TEST_F(DoctorCommand, SearchedFolderThatDoesNotExistIsMarked) {
  const Environment environment{{"CTXBROKER_PLUGIN_PATH", at("nowhere")}};
  EXPECT_THAT(run({"doctor"}, environment).output,
              AllOf(HasSubstr("searched: " + at("nowhere") + " (does not exist)\n"),
                    HasSubstr("searched: " + (program_folder().parent_path() / "plugins").string() +
                              "\n")));
  const json list = json::parse(run({"list", "--json"}, environment).output);
  EXPECT_EQ(list["missing_folders"][0], at("nowhere"));
}

TEST_F(DoctorCommand, AgainWithoutProbeIsAUsageError) {
  Start start;
  start.arguments = {"doctor", "--again"};
  expect_error(start, ExitCode::usage, {"--probe"});
}

TEST_F(DoctorCommand, DoctorWithoutADeviceSaysWhatIsMissing) {
  const Ended ended =
      run({"doctor"}, {{"CTXBROKER_DRIVER", "software"}, {"CTXBROKER_SOFTWARE_DEVICES", "0"}});
  EXPECT_EQ(ended.exit_code, static_cast<int>(ExitCode::driver));
  EXPECT_THAT(ended.output, HasSubstr("NOT USABLE"));
  EXPECT_THAT(ended.output, HasSubstr("missing"));
}

// The software device stands for NVIDIA's driver, and fails as that does.
TEST_F(DoctorCommand, DriverThatCannotBeInitialisedIsNamedWithTheRemedy) {
  const auto software = program_folder().parent_path() / "lib/ctxbroker/software_device";
  const std::pair<const char*, const char*> cases[] = {
      {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
       "different versions, as after an update of the driver: reboot"},
      {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "remove the package cuda-compat"},
      {"CUDA_ERROR_STUB_LIBRARY", "the toolkit's stub"},
      {"CUDA_ERROR_UNKNOWN", "modprobe nvidia_uvm"},
      {"CUDA_ERROR_OUT_OF_MEMORY", "nvidia-smi and dmesg may say more"}};
  for (const auto& [status, remedy] : cases) {
    const Ended ended =
        run({"doctor"}, {{"CTXBROKER_DRIVER", "nvidia"},
                         {"LD_LIBRARY_PATH", software.string()},
                         {"CTXBROKER_SOFTWARE_FAIL", std::string("cuInit:1=") + status}});
    EXPECT_EQ(ended.exit_code, static_cast<int>(ExitCode::driver)) << ended.output;
    EXPECT_THAT(ended.output, AllOf(HasSubstr("NOT USABLE"), HasSubstr("cannot be initialised"),
                                    HasSubstr(status), HasSubstr(remedy)));
  }
}

TEST_F(DoctorCommand, NamesLibrariesThatCannotBeUsed) {
  std::filesystem::create_directory(folder / "plugins");
  std::filesystem::copy_file(test_plugin("wrong_major"), folder / "plugins/wrong_major.so");
  std::filesystem::copy_file(test_plugin("init_fails"), folder / "plugins/init_fails.so");
  const Ended ended = run({"doctor", "--json", "--plugin-path", at("plugins")});
  EXPECT_EQ(ended.exit_code, 0);
  const json doctor = json::parse(ended.output);
  ASSERT_EQ(doctor["problems"].size(), 2U);
  EXPECT_EQ(doctor["problems"][0]["kind"], "could_not_load");
  EXPECT_THAT(doctor["problems"][0]["text"].get<std::string>(), HasSubstr("cannot be initialised"));
  EXPECT_THAT(doctor["problems"][1]["text"].get<std::string>(), HasSubstr("plug-in ABI"));
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
