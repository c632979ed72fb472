// SPDX-License-Identifier: Apache-2.0
// --policy, --device and the table of leases.
#include "command_test.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;

const Environment two_devices{{"CTXBROKER_DRIVER", "software"},
                              {"CTXBROKER_SOFTWARE_DEVICES", "2"}};

class PolicyOption : public CommandTest {
 protected:
  std::string policy(const std::string& members) const {
    write_bytes(folder / "policy.json", R"({"schema": "ctxbroker.policy/1", )" + members + "}");
    return at("policy.json");
  }
  // An image through these plug-ins, with a report.
  std::vector<std::string> image(const std::vector<std::string>& plugins,
                                 const std::vector<std::string>& more) const {
    std::vector<std::string> words{"image",  png("in.png", 8, 6), "-o", at("out.png"),
                                   "--json", at("report.json")};
    for (const std::string& plugin : plugins) words.insert(words.end(), {"--plugin", plugin});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(PolicyOption, PolicyByIdRanksBelowTheLeaseOption) {
  const std::string file = policy(R"("for_all": {"lease": "shared"},
                "by_id": {"org.ctxbroker.sample.blur": {"lease": "private"}})");
  run_well(image({"exposure", "blur"}, {"--policy", file}));
  const json leases = json_at("report.json")["leases"];
  ASSERT_EQ(leases.size(), 2U);
  EXPECT_EQ(leases[0]["granted"], "shared");
  EXPECT_EQ(leases[0]["reason"], "the policy for all plug-ins asked for shared");
  EXPECT_EQ(leases[1]["granted"], "private");
  EXPECT_EQ(leases[1]["reason"], "the policy for org.ctxbroker.sample.blur asked for private");

  run_well(image({"exposure", "blur"}, {"--policy", file, "--lease", "shared"}));
  EXPECT_EQ(json_at("report.json")["leases"][1]["granted"], "shared");
  EXPECT_EQ(json_at("report.json")["leases"][1]["reason"], "the host asked for shared");
}

TEST_F(PolicyOption, ABadFileIsAUsageErrorThatNamesIt) {
  const std::string in = png("in.png", 4, 4);
  const auto start = [&](const std::string& file) {
    Start run;
    run.arguments = {"image", in, "-o", at("out.png"), "--plugin", "exposure", "--policy", file};
    return run;
  };
  expect_error(start(at("missing.json")), ExitCode::usage, {"missing.json", "no such file"});
  const std::string budget = policy(R"("for_all": {"driver_memory_budget": "much"})");
  expect_error(
      start(budget), ExitCode::usage,
      {"policy.json", "$.for_all.driver_memory_budget", "\"much\" is not a memory budget"});
  const std::string file = policy(R"("by_id": {"org.example.x": {"lease": "green:0"}})");
  expect_error(start(file), ExitCode::usage,
               {"policy.json", "$.by_id[\"org.example.x\"].lease", "\"green:0\" is not a lease"});
}

TEST_F(PolicyOption, IdThatNoPluginHasIsAWarning) {
  const std::string file = policy(R"("by_id": {
      "org.ctxbroker.sample.exposure": {"lease": "shared"},
      "org.ctxbroker.sample.vignette": {"lease": "shared"},
      "org.ctxbroker.sample.blurr": {"lease": "shared"},
      "org.acme.hog": {"lease": "shared"},
      "com.example.nowhere": {"lease": "shared"}},
      "libraries": [{"match": "*/libneighbour.so", "tenant": "org.acme.hog"}])");
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--policy", file}, {"--policy", file, "--isolate"}}) {
    const Ended ended = run(image({"exposure"}, more));
    EXPECT_EQ(ended.exit_code, 0);
    for (const char* part :
         {"policy.json", "$.by_id[\"org.ctxbroker.sample.blurr\"] has no effect",
          "did you mean \"org.ctxbroker.sample.blur\"?",
          "$.by_id[\"com.example.nowhere\"] has no effect", "sample_host list shows the ids"}) {
      EXPECT_THAT(ended.errors, HasSubstr(part));
    }
    EXPECT_THAT(ended.errors, testing::Not(HasSubstr("vignette"))) << "it is there, but not used";
    EXPECT_THAT(ended.errors, testing::Not(HasSubstr("sample.exposure")));
    EXPECT_THAT(ended.errors, testing::Not(HasSubstr("org.acme"))) << "a pattern names it";
  }
}

TEST_F(PolicyOption, DevicesAreChosenByRule) {
  for (const char* rule : {"round-robin", "most-free-memory"}) {
    const Ended ended =
        run_well(image({"exposure", "blur", "unsharp"}, {"--device", rule}), two_devices);
    const json report = json_at("report.json");
    ASSERT_EQ(report["leases"].size(), 3U) << rule;
    EXPECT_EQ(report["leases"][0]["device"], 0) << rule;
    EXPECT_EQ(report["leases"][1]["device"], 1) << rule;
    EXPECT_EQ(report["devices"].size(), 2U);
    EXPECT_EQ(report["plugins"][1]["lease"]["device"], 1);
    EXPECT_EQ(read_raw_png(folder / "out.png").width, 8U);
    EXPECT_THAT(ended.output, HasSubstr("1: ctxbroker software device"));
  }
  const auto samples = read_raw_png(folder / "out.png").samples;
  run_well(image({"exposure", "blur", "unsharp"}, {"--device", "1"}), two_devices);
  EXPECT_EQ(json_at("report.json")["device"]["ordinal"], 1);
  EXPECT_EQ(json_at("report.json")["devices"].size(), 1U);
  EXPECT_EQ(read_raw_png(folder / "out.png").samples, samples);
}

TEST_F(PolicyOption, TheLeaseTableHasARowPerLibraryAndDevice) {
  const std::vector<std::string> words =
      image({"blur", "exposure", "blur:radius=2"}, {"--lease", "private"});
  const Ended ended = run_well(words);
  EXPECT_THAT(ended.output,
              ContainsRegex("tenant +device +asked +granted +SMs +memory held +generation +state "
                            "+strikes\n"));
  EXPECT_THAT(ended.output, ContainsRegex("blur +0 +private +private +[0-9]+ +[0-9.]+ [KM]?i?B "
                                          "+[0-9]+ +ready +0\n"));
  const json leases = json_at("report.json")["leases"];
  ASSERT_EQ(leases.size(), 2U) << "two instances of one library have one lease";
  EXPECT_EQ(leases[0]["tenant"], "blur");
  EXPECT_EQ(leases[0]["asked"], "private");
  EXPECT_EQ(leases[0]["multiprocessors"], json_at("report.json")["device"]["multiprocessors"]);
  EXPECT_EQ(leases[0]["state"], "ready");
  EXPECT_EQ(leases[0]["strikes"], 0);
  EXPECT_GT(leases[0]["generation"].get<int>(), 0);
  const json plugins = json_at("report.json")["plugins"];
  EXPECT_EQ(leases[0]["memory_bytes"], plugins[0]["memory_bytes"].get<std::uint64_t>() +
                                           plugins[2]["memory_bytes"].get<std::uint64_t>());
  EXPECT_GT(leases[0]["memory_bytes"].get<std::uint64_t>(), 0U);

  std::vector<std::string> verbose = words;
  verbose.emplace_back("-v");
  EXPECT_THAT(run(verbose).output, HasSubstr("the host asked for private"));
  EXPECT_THAT(ended.output, testing::Not(HasSubstr("the host asked for private")));
}

// The strongest of what the policy says of its plug-ins, on each of its devices; memory by device,
// strikes once.
TEST_F(PolicyOption, TheLeaseTableHasARowForEachDeviceOfOneLibrary) {
  const std::string file = policy(R"("by_id": {
      "com.example.test.affine": {"placement": 0, "lease": "shared"},
      "com.example.test.megabyte": {"placement": 1, "lease": "private"},
      "com.example.test.other_sizes": {"placement": 1}})");
  const std::string library = program_folder().parent_path() / "test_plugins/behaviours.so#";
  const Ended ended = run(image({library + "affine", library + "megabyte", library + "other_sizes"},
                                {"--policy", file}),
                          two_devices);
  ASSERT_EQ(ended.exit_code, 0) << ended.errors;
  const json leases = json_at("report.json")["leases"];
  ASSERT_EQ(leases.size(), 2U) << leases;
  for (const int device : {0, 1}) {
    const json& row = leases[static_cast<std::size_t>(device)];
    EXPECT_EQ(row["tenant"], "behaviours");
    EXPECT_EQ(row["device"], device);
    EXPECT_EQ(row["asked"], "private");
    EXPECT_EQ(row["granted"], "private");
    EXPECT_EQ(row["reason"], "the policy for com.example.test.megabyte asked for private");
    EXPECT_EQ(row["memory_bytes"], device << 20) << "megabyte is on the second one";
    EXPECT_EQ(row["strikes"], device == 0 ? 1 : 0) << "on the second device, and the tenant's";
  }
  EXPECT_NE(leases[0]["generation"], leases[1]["generation"]);
  EXPECT_EQ(json_at("report.json")["plugins"][2]["strikes"], 1);
  EXPECT_THAT(ended.output, ContainsRegex("behaviours +0 +private.* ready +1\n"));
  EXPECT_THAT(ended.output, ContainsRegex("behaviours +1 +private.* ready +0\n"));
}

class DoctorShield : public CommandTest {};

json shield_of(const Ended& ended) {
  const json doctor = json::parse(ended.output);
  for (const json& row : doctor["protection"]) {
    if (row["name"] == "shield") return row;
  }
  return {};
}

TEST_F(DoctorShield, ShieldIsTriedOnEveryDevice) {
  const json shield = shield_of(run_well({"doctor", "--json"}, two_devices));
  ASSERT_EQ(shield["devices"].size(), 2U);
  EXPECT_EQ(shield["devices"][1]["device"], 1);
  EXPECT_EQ(shield["devices"][1]["up"], true);
  EXPECT_THAT(run_well({"doctor"}, two_devices).output, HasSubstr("shield: device 1 up"));
}

TEST_F(DoctorShield, ShieldThatIsNotAvailableIsReported) {
  const Environment old_driver{
      {"CTXBROKER_DRIVER", "software"},
      {"CTXBROKER_SOFTWARE_FAIL", "cuDeviceGetDevResource:1=CUDA_ERROR_NOT_SUPPORTED"}};
  const Ended text = run({"doctor"}, old_driver);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.output,
              HasSubstr("shield: device 0 NOT UP (the driver offers no green contexts"));
  EXPECT_EQ(shield_of(run({"doctor", "--json"}, old_driver))["devices"][0]["up"], false);

  const Ended broken =
      run({"doctor"},
          {{"CTXBROKER_DRIVER", "software"},
           {"CTXBROKER_SOFTWARE_FAIL", "cuDevicePrimaryCtxRetain:1=CUDA_ERROR_OUT_OF_MEMORY"}});
  EXPECT_THAT(broken.output, HasSubstr("shield: device 0 NOT TRIED, the device cannot be used"));
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
