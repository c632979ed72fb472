// SPDX-License-Identifier: Apache-2.0
// What ctxb-run refuses before it runs the program, and what ends the program before its first call
// of the driver. The program never runs unprotected by accident.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "run.hpp"
#include "support/test_library.hpp"

namespace ctxbroker::launch::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The program did not run, and one line says why.
void expect_refused(const ChildResult& ended, int code, const std::string& why) {
  EXPECT_EQ(ended.exit_code, code);
  EXPECT_EQ(ended.output, "");
  EXPECT_THAT(ended.errors, AllOf(StartsWith("ctxb-run: error: "), HasSubstr(why)));
  EXPECT_EQ(std::count(ended.errors.begin(), ended.errors.end(), '\n'), 1) << ended.errors;
}

TEST_F(RunTest, MistypedOptionIsRefused) {
  expect_refused(run({"--reprot", at("r.json"), program(), "print=x"}), 125,
                 "there is no option --reprot (did you mean \"--report\"?)");
  expect_refused(run({"--driver", "nvida", program(), "print=x"}), 125,
                 "\"nvida\" names no driver (did you mean \"nvidia\"?)");
  expect_refused(run({}), 125, "a program is missing");
}

TEST_F(RunTest, VariableThatNamesNoDriverIsRefused) {
  const Environment wrong{{"CTXBROKER_DRIVER", "nvida"}};
  const std::string why = "CTXBROKER_DRIVER is \"nvida\", which names no driver";
  expect_refused(run_program({}, {"print=x"}, wrong), 125, why);
  expect_refused(run_program({"--check"}, {"print=x"}, wrong), 125, why);
  EXPECT_EQ(run_program({"--driver=auto"}, {"print=x"}, wrong).output, "x\n")
      << "the option counts more";
}

TEST_F(RunTest, ProgramThatIsNotThereIsRefused) {
  expect_refused(run({"no-such-program"}), 127, "no such program in the folders of PATH");
  expect_refused(run({at("nothing")}), 127, "there is no such program");
}

TEST_F(RunTest, ProgramThatMayNotBeExecutedIsRefused) {
  write_bytes(folder / "plain", "text");
  expect_refused(run({at("plain")}), 126, "it is not executable");
  expect_refused(run({folder.path().string()}), 126, "it is a folder");
  std::filesystem::permissions(folder / "plain", std::filesystem::perms::owner_all);
  expect_refused(run({at("plain")}), 126, "neither a program nor a script");
  write_bytes(folder / "script", "#!/no/such/interpreter\n");
  std::filesystem::permissions(folder / "script", std::filesystem::perms::owner_all);
  expect_refused(run({at("script")}), 126, "/no/such/interpreter, which is not there");
}

TEST_F(RunTest, ProgramThatCannotBeProtectedIsRefused) {
  std::filesystem::copy_file(program(), folder / "copy");
  const auto of_architecture = [&](char machine) {
    std::string bytes = read_bytes(program());
    bytes[18] = machine;  // e_machine
    return bytes;
  };
  write_bytes(folder / "other", of_architecture(8));
  std::filesystem::permissions(folder / "other", std::filesystem::perms::owner_all);
  expect_refused(run({at("other")}), 126, "another architecture");
  expect_refused(run({own_library("ctxbroker_gate.so")}), 126, "");
}

TEST_F(RunTest, ProgramThatIsLinkedStaticallyIsRefused) {
  const auto path = std::filesystem::path(program()).parent_path() / "launch_linked_statically";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "the toolchain links nothing statically";
  expect_refused(run({path.string()}), 126, "it is linked statically and loads no library");
  expect_refused(run({"/usr/bin/env", path.string()}), 126, "it is linked statically");
}

TEST_F(RunTest, EnvThatTakesTheGateAwayIsRefused) {
  expect_refused(run({"/usr/bin/env", "-i", program(), "print=x"}), 126,
                 "because -i clears the environment; let env start ctxb-run instead");
  expect_refused(run({"/usr/bin/env", "LD_LIBRARY_PATH=/a", program(), "print=x"}), 126,
                 "because LD_LIBRARY_PATH=... replaces what ctxb-run sets");
  for (const std::string options : {"-u LD_PRELOAD", "-i", "A=b LD_PRELOAD=/a.so"}) {
    write_bytes(folder / "script", "#!/usr/bin/env -S " + options + " " + program() + "\n");
    std::filesystem::permissions(folder / "script", std::filesystem::perms::owner_all);
    expect_refused(run({at("script"), "print=x"}), 126, "without protection");
    expect_refused(run({"--check", at("script"), "print=x"}), 126, "without protection");
  }
}

TEST_F(RunTest, EnvThatKeepsTheGateIsCovered) {
  const std::string covered = "A=b\nuse: 0\nreset: 800\nmemory: whole\n";
  const std::vector<std::string> deeds{"variable=A", "use", "reset", "look"};
  const auto with = [&](std::vector<std::string> command) {
    command.insert(command.end(), deeds.begin(), deeds.end());
    return run(command);
  };
  EXPECT_EQ(with({"/usr/bin/env", "-u", "B", "A=b", program()}).output, covered);
  write_bytes(folder / "script", "#!/usr/bin/env -S -u B A=b " + program() + "\n");
  std::filesystem::permissions(folder / "script", std::filesystem::perms::owner_all);
  EXPECT_EQ(with({at("script")}).output, covered);
  EXPECT_THAT(with({"--check", at("script")}).output,
              HasSubstr("a script that runs with /usr/bin/env, then " + program() + "\n"));
  EXPECT_THAT(with({"--check", "/usr/bin/env", "A=b", program()}).output,
              HasSubstr("/usr/bin/env, which starts " + program() + "\n"));
  expect_refused(with({"/usr/bin/env", "A=b", at("nothing")}), 127, "there is no such program");
}

TEST_F(RunTest, SetUserIdProgramIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  std::filesystem::copy_file(program(), folder / "copy");
  ASSERT_EQ(::chown(at("copy").c_str(), 1, 1), 0);
  ASSERT_EQ(::chmod(at("copy").c_str(), 04755), 0);
  expect_refused(run({at("copy"), "print=x"}), 126, "it is set-user-ID");
  ASSERT_EQ(::chmod(at("copy").c_str(), 0755), 0);
  EXPECT_EQ(run({at("copy"), "print=x"}).output, "x\n");
}

TEST_F(RunTest, WrongPolicyIsRefused) {
  expect_refused(run_program({"--policy", at("none.json")}, {"print=x"}), 125,
                 "none.json\": there is no such file");
  write_bytes(folder / "p.json", R"({"schema": "ctxbroker.policy/1", "by_ip": {}})");
  expect_refused(run_program({"--policy", at("p.json")}, {"print=x"}), 125,
                 "by_ip: there is no such member");
  const auto with = [&](const std::string& pattern) {
    write_bytes(folder / "p.json",
                R"({"schema": "ctxbroker.policy/1", "libraries": [)" + pattern + "]}");
    return run_program({"--policy", at("p.json")}, {"print=x"});
  };
  expect_refused(with(R"({"match": "*/a.so", "tenant": "host"})"), 125, "belongs to no tenant");
  expect_refused(with(R"({"match": "a.so", "tenant": "a"})"), 125, "write \"*/a.so\"");
}

TEST_F(RunTest, PolicyThatCannotBeReadIsRefused) {
  expect_refused(run_program({"--policy", folder.path().string()}, {"print=x"}), 125,
                 "is a folder, not a file");
  write_bytes(folder / "p.json", R"({"schema": "ctxbroker.policy/1"})");
  EXPECT_EQ(run_program({"--policy", at("p.json")}, {"print=x"}).output, "x\n") << "as a control";
  std::filesystem::permissions(folder / "p.json", std::filesystem::perms::none);
  if (::access(at("p.json").c_str(), R_OK) == 0) GTEST_SKIP() << "root may read every file";
  expect_refused(run_program({"--policy", at("p.json")}, {"print=x"}), 125,
                 "cannot be read: Permission denied");
}

TEST_F(RunTest, FileThatCannotBeWrittenIsRefused) {
  expect_refused(run_program({"--report", at("no/r.json")}, {"print=x"}), 125,
                 "there is no folder " + at("no"));
  expect_refused(run_program({"--trace", folder.path().string()}, {"print=x"}), 125,
                 "it is a folder");
  expect_refused(run_program({"--report", ""}, {"print=x"}), 125, "the file's name is empty");
}

// A reader of the pipe would get several documents. The test reads standard output from a pipe.
TEST_F(RunTest, FileThatIsAPipeOrADeviceIsRefused) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  for (const std::string option : {"--report", "--trace"}) {
    for (const std::string& path :
         {std::string("/dev/stdout"), std::string("/dev/null"), at("pipe")}) {
      expect_refused(run_program({option, path}, {"use"}), 125,
                     option + ": " + path + ": it is a pipe or a device, not a file");
    }
  }
  std::filesystem::create_symlink("behind.json", folder / "link.json");
  write_bytes(folder / "behind.json", "an older one");
  EXPECT_EQ(run_program({"--report", at("link.json")}, {"use"}).exit_code, 0) << "as a control";
  EXPECT_TRUE(report("behind.json")["finished"]);
}

TEST_F(RunTest, FileThatIsWrittenOverAnotherOneOfTheRunIsRefused) {
  const std::string policy = R"({"schema": "ctxbroker.policy/1"})";
  write_bytes(folder / "p.json", policy);
  std::filesystem::create_symlink("p.json", folder / "link.json");
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong{
      {{"--policy", at("p.json"), "--report", at("p.json")}, "it is the file of --policy too"},
      {{"--policy", at("p.json"), "--trace", at("link.json")}, "it is the file of --policy too"},
      {{"--report", at("r.json"), "--trace", at("x/../r.json")}, "it is the file of --report too"}};
  std::filesystem::create_directory(folder / "x");
  for (const auto& [options, why] : wrong) {
    expect_refused(run_program(options, {"print=x"}), 125, why);
  }
  EXPECT_EQ(read_bytes(folder / "p.json"), policy);
  EXPECT_THAT(folder.names(), testing::ElementsAre("link.json", "p.json", "x"));
}

// The report is written before the program starts, so that it would be the program.
TEST_F(RunTest, FileThatTheRunNeedsIsNotWrittenOver) {
  namespace fs = std::filesystem;
  fs::copy_file(program(), folder / "copy");
  fs::create_symlink("copy", folder / "link");
  fs::create_hard_link(folder / "copy", folder / "hard");
  write_bytes(folder / "script", "#!" + at("copy") + "\n");
  fs::permissions(folder / "script", fs::perms::owner_all);
  const std::string before = read_bytes(folder / "copy");
  const std::string script = read_bytes(folder / "script");
  for (const std::string option : {"--report", "--trace"}) {
    for (const char* name : {"copy", "link", "hard"}) {
      expect_refused(run({option, at(name), at("copy"), "print=x"}), 125,
                     option + ": " + at(name) + ": it is the program that is to run");
    }
    expect_refused(run({option, at("script"), at("script")}), 125, "the program that is to run");
    expect_refused(run({option, at("link"), at("script")}), 125, "a program that is to run");
    expect_refused(run({option, at("script"), at("copy"), at("script")}), 125,
                   "an argument of the program");
  }
  EXPECT_EQ(read_bytes(folder / "copy"), before);
  EXPECT_EQ(read_bytes(folder / "script"), script);
  EXPECT_EQ(run({"--report", at("r.json"), at("copy"), "print=x"}).output, "x\n") << "as a control";
}

// An installation of which a part is missing. Links would lead back to the whole one.
class DamagedInstallation : public RunTest {
 protected:
  void SetUp() override {
    RunTest::SetUp();
    if (IsSkipped()) return;
    namespace fs = std::filesystem;
    const fs::path root = fs::path(ctxb_run()).parent_path().parent_path();
    fs::create_directories(folder / "in/bin");
    fs::create_directories(folder / "in/lib/ctxbroker/gate");
    fs::copy_file(ctxb_run(), folder / "in/bin/ctxb-run");
    fs::copy_file(root / "lib/libctxbroker.so.0", folder / "in/lib/libctxbroker.so.0");
    for (const char* name : {"ctxbroker_launch.so", "ctxbroker_run.so", "ctxbroker_gate.so",
                             "libctxbroker_software_device.so"}) {
      fs::copy_file(own_library(name), folder / "in/lib/ctxbroker" / name);
    }
    fs::create_symlink("../ctxbroker_gate.so", folder / "in/lib/ctxbroker/gate/libcuda.so.1");
  }
  void remove(const std::string& name) const {
    std::filesystem::remove(folder / ("in/lib/ctxbroker/" + name));
  }
  ChildResult run_there(const std::vector<std::string>& deeds) const {
    ChildStart start;
    start.command = {at("in/bin/ctxb-run"), program()};
    start.command.insert(start.command.end(), deeds.begin(), deeds.end());
    start.errors = ChildErrors::apart;
    return ChildProcess(start).wait(std::chrono::seconds(100));
  }
};

TEST_F(DamagedInstallation, WholeOneWorksAsAControl) {
  EXPECT_EQ(run_there({"use", "reset", "look"}).output, "use: 0\nreset: 800\nmemory: whole\n");
}

TEST_F(DamagedInstallation, MissingFileIsFoundBeforeTheStart) {
  for (const char* name : {"libctxbroker_software_device.so", "gate/libcuda.so.1",
                           "ctxbroker_run.so", "ctxbroker_launch.so"}) {
    if (std::string(name) == "libctxbroker_software_device.so" && !driver_is_software()) continue;
    remove(name);
    expect_refused(run_there({"print=x"}), 125, std::string(name) + ": the file is missing");
  }
}

TEST_F(DamagedInstallation, DriverThatCannotBeOpenedEndsTheProcessBeforeItsFirstCall) {
  if (!driver_is_software()) GTEST_SKIP() << "damages the software device";
  write_bytes(folder / "in/lib/ctxbroker/libctxbroker_software_device.so", "no library");
  const auto ended = run_there({"print=before", "use", "print=after"});
  EXPECT_EQ(ended.exit_code, 125);
  EXPECT_EQ(ended.output, "before\n");
  EXPECT_THAT(ended.errors,
              StartsWith("ctxb-run: error: the process was ended before its first call of the "
                         "CUDA driver: no software device: "));
}

TEST_F(DamagedInstallation, DamagedLibraryEndsTheProcessBeforeItsFirstCall) {
  write_bytes(folder / "in/lib/ctxbroker/ctxbroker_run.so", "no library");
  const auto ended = run_there({"print=before", "use", "print=after"});
  EXPECT_EQ(ended.exit_code, 125);
  EXPECT_EQ(ended.output, "before\n");
  EXPECT_THAT(ended.errors, HasSubstr("the broker cannot be loaded: "));
}

// The loader separates paths of LD_PRELOAD by blanks.
TEST_F(DamagedInstallation, FolderWithABlankInItsNameWorks) {
  std::filesystem::rename(folder / "in", folder / "some where");
  std::filesystem::create_symlink("some where", folder / "in");
  EXPECT_EQ(run_there({"use", "reset", "look"}).output, "use: 0\nreset: 800\nmemory: whole\n");
}

TEST_F(DamagedInstallation, FolderThatTheLoaderCannotBeGivenIsRefused) {
  std::filesystem::rename(folder / "in", folder / "some:where");
  std::filesystem::create_symlink("some:where", folder / "in");
  expect_refused(run_there({"print=x"}), 125, "the system's loader cannot be given this path");
}

TEST_F(RunTest, MachineWithoutAnNvidiaDriverHasNoDeviceAsAlone) {
  // The test's own program has no gate in front of the driver.
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver != nullptr) GTEST_SKIP() << "for machines without NVIDIA's driver";
  const auto ended =
      run_program({"--report", at("report.json")}, {"use", "exit=6"}, {{"CTXBROKER_DRIVER", ""}});
  EXPECT_EQ(ended.output, "use: 100\n");
  EXPECT_EQ(ended.exit_code, 6);
  EXPECT_EQ(ended.errors, "");
  EXPECT_THAT(report()["error"], StartsWith("no NVIDIA driver: "));
  const auto asked_for = run_program({"--driver=nvidia"}, {"use"});
  EXPECT_EQ(asked_for.exit_code, 125);
}

TEST_F(RunTest, CheckSaysWhatARunWouldDo) {
  write_bytes(folder / "script", "#!/bin/sh\n");
  std::filesystem::permissions(folder / "script", std::filesystem::perms::owner_all);
  const auto ended = run({"--check", "--children=no", "--report", at("r.json"), "--driver=software",
                          at("script"), "x"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.errors, "");
  for (const std::string& part :
       {"program    " + at("script") + ", a script that runs with /bin/sh\n",
        std::string("driver     software, as --driver says\n"),
        std::string("tenants    none: the shield alone"), std::string("children   not covered"),
        "report: " + at("r.json") + "\n", std::string("by its absolute path")}) {
    EXPECT_THAT(ended.output, HasSubstr(part));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "r.json"));
}

TEST_F(RunTest, CheckRefusesWhatARunWouldRefuse) {
  expect_refused(run({"--check", "no-such-program"}), 127, "no such program");
}

}  // namespace
}  // namespace ctxbroker::launch::test
