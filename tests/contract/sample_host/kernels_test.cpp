// SPDX-License-Identifier: Apache-2.0
// sample_host kernels: what images hold, without a driver.
#include <string_view>

#include "command_test.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view several_fatbin, machine_cubin;
}

namespace ctxbroker::sample_host::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class KernelsCommand : public CommandTest {
 protected:
  std::string file(const std::string& name, std::string_view bytes) const {
    write_bytes(folder / name, std::string(bytes));
    return at(name);
  }
  void expect_command_error(std::vector<std::string> arguments, ExitCode code,
                            const std::vector<std::string>& parts) const {
    Start start;
    start.arguments = std::move(arguments);
    expect_error(start, code, parts);
  }
  void expect_refused(const std::string& name, std::string_view bytes, const char* why) const {
    expect_command_error({"kernels", file(name, bytes)}, ExitCode::kernel_image, {name, why});
  }
};

TEST_F(KernelsCommand, ReadsEveryEntryWithoutADriver) {
  const std::string fatbin = file("several.fatbin", fixtures::several_fatbin);
  const std::string cubin = file("machine.cubin", fixtures::machine_cubin);
  const Ended ended =
      run_well({"kernels", "--json", fatbin, cubin}, {{"CTXBROKER_DRIVER", "nvidia"}});
  const json report = json::parse(ended.output);
  EXPECT_EQ(report["schema"], "ctxbroker.sample_host.kernels/1");
  ASSERT_EQ(report["images"].size(), 2U);
  const json& several = report["images"][0];
  EXPECT_EQ(several["file"], fatbin);
  EXPECT_EQ(several["kind"], "fatbin");
  EXPECT_EQ(several["bytes"], fixtures::several_fatbin.size());
  std::vector<std::string> entries;
  for (const json& entry : several["entries"]) {
    entries.push_back(entry["code"].get<std::string>() + " " + entry["target"].get<std::string>());
    EXPECT_THAT(entry["kernels"], testing::UnorderedElementsAre("first", "_Z8constantILi3EEvPi"));
    EXPECT_EQ(entry["address_bits"], 64);
  }
  EXPECT_THAT(entries,
              testing::UnorderedElementsAre("machine-code sm_75", "ptx sm_75", "ptx sm_90a"));
  const json& machine = report["images"][1]["entries"][0];
  EXPECT_EQ(report["images"][1]["summary"], "cubin with machine code for sm_80");
  EXPECT_EQ(machine["variables"].size(), 3U);
  EXPECT_EQ(machine["relocatable"], false);
}

TEST_F(KernelsCommand, PrintsATable) {
  const Ended ended = run_well({"kernels", file("several.fatbin", fixtures::several_fatbin)});
  for (const char* part : {"several.fatbin: fatbin, ", "entry", "SASS", "sm_90a", "zstd", "first",
                           "table (constant, 16 B)", "counter (variable, 4 B)"}) {
    EXPECT_THAT(ended.output, HasSubstr(part));
  }
}

TEST_F(KernelsCommand, BadFileIsRefusedWithItsReason) {
  expect_refused("text.ptx", "hello", "neither PTX text nor a fatbin nor a cubin");
  expect_refused("cut.fatbin", fixtures::several_fatbin.substr(0, 200), "truncated");
  expect_refused("cut.cubin", fixtures::machine_cubin.substr(0, 200), "truncated");
  expect_command_error({"kernels", at("none.ptx")}, ExitCode::input, {"none.ptx"});
  expect_command_error({"kernels"}, ExitCode::usage, {"file"});
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
