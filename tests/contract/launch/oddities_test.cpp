// SPDX-License-Identifier: Apache-2.0
// Programs that behave oddly, and hostile libraries.
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>

#include "run.hpp"
#include "support/test_library.hpp"

namespace ctxbroker::launch::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST_F(RunTest, ThreadOfALibraryThatRunsBeforeMainIsHeld) {
  const std::string on_thread = neighbour("launch_neighbour_on_thread");
  const std::vector<std::string> deeds{"use", "wait-by=" + on_thread, "look"};
  const Environment preload{{"LD_PRELOAD", on_thread}};
  EXPECT_EQ(run_program({}, deeds, preload).output, "use: 0\nlast_status: 800\nmemory: whole\n");
  EXPECT_EQ(run_program({"--tenant", "thread=*_on_thread.so"}, deeds, preload).output,
            "use: 0\nlast_status: 0\nmemory: whole\n");
  EXPECT_THAT(run_alone({"use", "wait-by=" + on_thread, "look"}).output,
              HasSubstr("memory: DAMAGED\n"));
}

TEST_F(RunTest, ConstructorMayOpenAnotherTenantsLibrary) {
  const auto ended =
      run_program({"--tenant", "outer=*_opens.so", "--tenant", "inner=*_at_load.so", "--report",
                   at("report.json")},
                  {"open=" + neighbour("launch_neighbour_opens"),
                   "reset-by=" + neighbour("launch_neighbour_at_load"), "use", "look"},
                  {{"NEIGHBOUR_OPENS", neighbour("launch_neighbour_at_load")}});
  EXPECT_EQ(ended.output, "reset_device: 0\nuse: 0\nmemory: whole\n");
  const auto json = report();
  ASSERT_THAT(json.at("libraries"), SizeIs(2));
  for (const auto& library : json.at("libraries")) {
    const bool is_inner = library.at("path") == neighbour("launch_neighbour_at_load");
    EXPECT_EQ(library.at("tenant_name"), is_inner ? "inner" : "outer");
  }
}

// The program opens it by a path that leads to another tenant's file when the gate first meets it.
TEST_F(RunTest, LibraryIsTheTenantsOfItsOwnFileAfterAChangeOfTheWorkingFolder) {
  for (const char* const name : {"first", "second"}) {
    fs::create_directory(folder / name);
    fs::copy_file(neighbour(), folder / name / "one.so");
  }
  const auto ended = run_program({"--tenant", "mine=*/first/one.so", "--tenant",
                                  "theirs=*/second/one.so", "--report", at("report.json")},
                                 {"go-to=" + at("first"), "open=./one.so", "go-to=" + at("second"),
                                  "use", "reset-by=" + at("first/one.so"), "look"});
  EXPECT_EQ(ended.output, "use: 0\nreset_device: 0\nmemory: whole\n");
  const auto json = report();
  ASSERT_THAT(json.at("libraries"), SizeIs(1));
  EXPECT_EQ(json.at("libraries").at(0).at("tenant_name"), "mine");
  EXPECT_EQ(json.at("libraries").at(0).at("path"), at("first/one.so"));
}

// Libraries that are opened later share what the C library keeps for thread-local data.
TEST_F(RunTest, ProgramThatHasNoRoomForThreadLocalDataEndsAndIsToldTheRemedy) {
  fs::create_directory(folder / "tls");
  for (int i = 0; i < 20; ++i) {
    fs::copy_file(neighbour("launch_takes_room"), folder / "tls" / (std::to_string(i) + ".so"));
  }
  const std::vector<std::string> deeds{"open-what-fits=" + at("tls"), "use", "reset", "look"};
  const auto ended = run_program({}, deeds);
  EXPECT_EQ(ended.exit_code, 125);
  EXPECT_EQ(ended.output, "");
  EXPECT_THAT(ended.errors, AllOf(StartsWith("ctxb-run: error: "), HasSubstr("static TLS block"),
                                  HasSubstr("GLIBC_TUNABLES=glibc.rtld.optional_static_tls=")));
  const auto with_remedy =
      run_program({}, deeds, {{"GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=4096"}});
  EXPECT_EQ(with_remedy.output, "use: 0\nreset: 800\nmemory: whole\n");
}

TEST_F(RunTest, FiveHundredLibrariesOfATenantAreHeld) {
  fs::create_directory(folder / "many");
  std::vector<std::string> deeds{"use"};
  for (int i = 0; i < 500; ++i) {
    const std::string copy = at("many/" + std::to_string(i) + ".so");
    fs::copy_file(neighbour(), copy);
    deeds.push_back((i % 100 == 0 ? "allocate-by=" : "open=") + copy);
  }
  deeds.push_back("reset-by=" + at("many/499.so"));
  deeds.emplace_back("look");
  const auto ended =
      run_program({"--tenant", "crowd=*/many/*.so", "--report", at("report.json")}, deeds);
  EXPECT_THAT(ended.output, HasSubstr("reset_device: 0\nmemory: whole\n"));
  EXPECT_EQ(ended.errors, "");
  const auto json = report();
  EXPECT_THAT(json.at("libraries"), SizeIs(500));
  for (const auto& library : json.at("libraries")) EXPECT_EQ(library.at("tenant_name"), "crowd");
}

// Its driver is another one, which has other contexts.
TEST_F(RunTest, LibraryInANamespaceOfItsOwnHarmsNobody) {
  const auto ended = run_program({}, {"use", "in-namespace=" + neighbour(), "look"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("in a namespace"), HasSubstr("memory: whole\n")));
}

TEST_F(RunTest, HostileLibraryCannotUnloadTheGate) {
  const auto ended = run_program({}, {"use", "drop-by=" + neighbour(), "reset", "look"});
  EXPECT_EQ(ended.output, "use: 0\ndrop_driver: 0\nreset: 800\nmemory: whole\n");
}

TEST_F(RunTest, ProgramThatClosesAllDescriptorsIsCoveredAndReports) {
  for (const bool is_before : {true, false}) {
    std::vector<std::string> deeds{"use", "reset", "look"};
    deeds.insert(is_before ? deeds.begin() : deeds.begin() + 1, "close-descriptors");
    const auto ended = run_program({"--report", at("report.json")}, deeds);
    EXPECT_EQ(ended.output, "use: 0\nreset: 800\nmemory: whole\n");
    EXPECT_TRUE(report().at("finished"));
    EXPECT_THAT(report().at("refused"), SizeIs(1));
  }
}

// The library changes what the program's children are told.
TEST_F(RunTest, ChildWithDamagedSettingsEndsBeforeItsFirstCall) {
  for (const char* settings : {"", "nonsense", "{}", "{\"policy\": 7}", "[[[[[[[["}) {
    const auto ended = run_program({}, {std::string("set-run=") + settings, "start=use,reset"});
    EXPECT_EQ(ended.output, "child: 125\n") << settings;
    EXPECT_THAT(ended.errors, StartsWith("ctxb-run: error: ")) << settings;
  }
}

TEST_F(RunTest, ProgramWithFileCapabilitiesIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file capabilities";
  const std::string copy = at("copy");
  fs::copy_file(program(), copy);
  fs::permissions(folder.path(), fs::perms(0755));
  fs::permissions(copy, fs::perms(0755));
  const auto as_nobody = [&] {
    ChildStart start;
    start.command = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534",
                     "--clear-groups",   ctxb_run(),      copy,
                     "print=x"};
    start.errors = ChildErrors::apart;
    return ChildProcess(start).wait(std::chrono::seconds(100));
  };
  if (const auto without = as_nobody(); without.output != "x\n") {
    GTEST_SKIP() << "another user cannot run what is built here: " << without.errors;
  }
  vfs_cap_data capabilities{};
  capabilities.magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE;
  capabilities.data[0].permitted = 1U << CAP_NET_BIND_SERVICE;
  if (::setxattr(copy.c_str(), "security.capability", &capabilities, sizeof capabilities, 0) != 0) {
    GTEST_SKIP() << "the file system keeps no capabilities";
  }
  const auto ended = as_nobody();
  EXPECT_EQ(ended.exit_code, 126);
  EXPECT_EQ(ended.output, "");
  EXPECT_THAT(ended.errors, HasSubstr("has file capabilities"));
}

}  // namespace
}  // namespace ctxbroker::launch::test
