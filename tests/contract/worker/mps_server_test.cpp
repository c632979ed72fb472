// SPDX-License-Identifier: Apache-2.0
// An MPS server of the host's own, with a control program that the test has written: it starts, it
// fails in each way, and nothing is left of it. graph_mps_test.cpp has workers under one.
#include "ctxbroker/mps_server.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "mps_fixture.hpp"
#include "support/child_process.hpp"
#include "worker_fixture.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

const std::string variable_name = "CUDA_MPS_PIPE_DIRECTORY=";

std::filesystem::path folder_of(const MpsServer& server) {
  return std::filesystem::path(server.variable().substr(variable_name.size())).parent_path();
}

void expect_nothing_left(const FakeMps& fake) {
  EXPECT_THAT(fake.alive(), IsEmpty());
  EXPECT_EQ(fake.folders(), 0U);
}

std::string failure(ErrorKind kind, const MpsServerOptions& options) {
  return error_of(kind, [&] { MpsServer server(options); });
}

TEST(MpsServer, ForkedProcessThatEndsItsCopyLeavesTheServerAlone) {
  const FakeMps fake;
  auto server = std::make_unique<MpsServer>(fake.options());
  const std::vector<int> alive = fake.alive();
  ASSERT_FALSE(alive.empty());
  const pid_t child = ::fork();
  if (child == 0) {
    server.reset();
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(fake.alive(), alive);
  EXPECT_EQ(fake.folders(), 1U);
  server.reset();
  expect_nothing_left(fake);
}

TEST(MpsServer, StartsAndEnds) {
  const FakeMps fake({":", "echo 100.0", "touch \"$p/quit\" \"$f/told\""});
  static_cast<void>(left());  // with what it starts itself
  const Left before = settled_left();
  {
    const MpsServer server(fake.options());
    EXPECT_THAT(server.variable(), StartsWith(variable_name + fake.folder().string() + "/"));
    EXPECT_EQ(std::filesystem::status(folder_of(server)).permissions(),
              std::filesystem::perms::owner_all);
    EXPECT_THAT(fake.alive(), SizeIs(2)) << "the daemon and its server";
    EXPECT_EQ(fake.folders(), 1U);
  }
  EXPECT_TRUE(std::filesystem::exists(fake.folder() / "told")) << "it was not just killed";
  expect_nothing_left(fake);
  EXPECT_EQ(left_after_all(before), before);
}

TEST(MpsServer, StartWaitsUntilTheServerTakesCommands) {
  const FakeMps fake({"sleep 0.4"});
  const auto begin = std::chrono::steady_clock::now();
  const MpsServer server(fake.options());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(400));
}

TEST(MpsServer, ProgramIsFoundInPath) {
  const FakeMps fake;
  const std::string before = std::getenv("PATH");
  setenv("PATH", ("/nowhere:" + fake.folder().string() + ":" + before).c_str(), 1);
  {
    const MpsServer server;
    EXPECT_THAT(fake.alive(), SizeIs(2));
  }
  setenv("PATH", "/nowhere", 1);
  EXPECT_THAT(
      failure(ErrorKind::plugin_not_found, {}),
      HasSubstr("there is no program \"nvidia-cuda-mps-control\" in PATH; NVIDIA's driver"));
  setenv("PATH", before.c_str(), 1);
  expect_nothing_left(fake);
}

TEST(MpsServer, BadProgramOrFolderIsRefused) {
  const FakeMps fake;
  MpsServerOptions options = fake.options();
  std::filesystem::permissions(fake.program(), std::filesystem::perms::owner_read);
  EXPECT_THAT(failure(ErrorKind::plugin_not_found, options),
              AllOf(HasSubstr(fake.program().string()), HasSubstr("MpsServerOptions::program")));
  std::filesystem::permissions(fake.program(), std::filesystem::perms::owner_all);
  options.folder = fake.folder() / "missing";
  EXPECT_THAT(failure(ErrorKind::output_file, options),
              AllOf(HasSubstr("missing"), HasSubstr("MpsServerOptions::folder")));
  options.folder = fake.folder() / std::string(80, 'x');
  std::filesystem::create_directory(options.folder);
  EXPECT_THAT(failure(ErrorKind::invalid_argument, options),
              AllOf(HasSubstr("too long for sockets"), HasSubstr("set TMPDIR")));
  EXPECT_TRUE(std::filesystem::is_empty(options.folder));
  options.folder.clear();
  options.start_timeout = {};
  EXPECT_THAT(failure(ErrorKind::invalid_argument, options), HasSubstr("start_timeout"));
  EXPECT_THAT(fake.started(), IsEmpty());
}

TEST(MpsServer, ServerThatEndsAtOnceSaysWhy) {
  const FakeMps fake({"echo no devices >\"$l/control.log\"; echo a hint >&2; exit 3"});
  static_cast<void>(left());
  const Left before = settled_left();
  EXPECT_THAT(failure(ErrorKind::plugin_load, fake.options()),
              AllOf(HasSubstr(fake.program().string() + "\" did not start: it ended with status 3"),
                    HasSubstr("it needs NVIDIA's driver"),
                    HasSubstr("its log ends with:\na hint\nno devices")));
  EXPECT_THAT(fake.started(), SizeIs(1));
  expect_nothing_left(fake);
  EXPECT_EQ(left_after_all(before), before);
}

TEST(MpsServer, ProgramThatCannotRunIsRefused) {
  const FakeMps fake;
  std::filesystem::resize_file(fake.program(), 2);  // "#!"
  EXPECT_THAT(failure(ErrorKind::plugin_load, fake.options()), HasSubstr("cannot start"));
  expect_nothing_left(fake);
}

TEST(MpsServer, ServerThatTakesNoCommandsIsEnded) {
  for (const FakeMpsWays& ways :
       {FakeMpsWays{"sleep 600"}, FakeMpsWays{":", "sleep 600"}, FakeMpsWays{":", "exit 1"}}) {
    const FakeMps fake(ways);
    MpsServerOptions options = fake.options();
    options.start_timeout = milliseconds(500);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THAT(failure(ErrorKind::plugin_load, options),
                AllOf(HasSubstr("it took no commands within 500 ms"),
                      HasSubstr("raise MpsServerOptions::start_timeout"),
                      HasSubstr("it has written nothing")));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    EXPECT_THAT(fake.started(), Not(IsEmpty()));
    expect_nothing_left(fake);
  }
}

// Neither does the command end.
TEST(MpsServer, ServerThatDoesNotQuitIsKilled) {
  const FakeMps fake({":", "echo 100.0", "sleep 600"});
  std::optional<MpsServer> server(fake.options());
  EXPECT_THAT(fake.alive(), SizeIs(2));
  server.reset();
  expect_nothing_left(fake);
}

TEST(MpsServer, ServersHaveSeparateFoldersAndProcesses) {
  const FakeMps fake;
  std::optional<MpsServer> one(fake.options());
  std::optional<MpsServer> other(fake.options());
  EXPECT_NE(one->variable(), other->variable());
  EXPECT_THAT(fake.alive(), SizeIs(4));
  const auto stays = folder_of(*other);
  one.reset();
  EXPECT_THAT(fake.alive(), SizeIs(2));
  EXPECT_TRUE(std::filesystem::exists(stays / "pipe" / "control"));
  other.reset();
  expect_nothing_left(fake);
}

TEST(MpsServer, MovedServerKeepsItsProcesses) {
  const FakeMps fake;
  MpsServer first(fake.options());
  const std::string variable = first.variable();
  MpsServer second(std::move(first));
  EXPECT_EQ(second.variable(), variable);
  EXPECT_THAT(fake.alive(), SizeIs(2));
  second = MpsServer(fake.options());
  EXPECT_NE(second.variable(), variable);
  EXPECT_THAT(fake.alive(), SizeIs(2)) << "the first one has ended";
}

// Another server's folder and log, a choice that the clients make, and what is none of its
// business.
TEST(MpsServer, ServerGetsNoVariablesThatChangeIt) {
  const FakeMps fake;
  for (const char* name : {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY",
                           "CUDA_VISIBLE_DEVICES", "TEST_MPS_SECRET"}) {
    setenv(name, "foreign", 1);
  }
  setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50", 1);
  const MpsServer server(fake.options());
  for (const char* name :
       {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES",
        "TEST_MPS_SECRET", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}) {
    unsetenv(name);
  }
  EXPECT_THAT(fake.environment(),
              AllOf(Not(HasSubstr("foreign")), Not(HasSubstr("CUDA_VISIBLE_DEVICES")),
                    HasSubstr(server.variable() + "\n"),
                    HasSubstr("CUDA_MPS_LOG_DIRECTORY=" + folder_of(server).string() + "/log\n"),
                    HasSubstr("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50\n")));
}

// The host then ends the process group that the daemon is in.
TEST(MpsServer, EndsWithTheHostThoughItsKeeperWasKilled) {
  const FakeMps fake;
  const std::vector<int> before = children();
  std::optional<MpsServer> server(fake.options());
  for (const int child : children()) {
    if (std::find(before.begin(), before.end(), child) == before.end()) kill(child, SIGKILL);
  }
  server.reset();
  // Who was killed may take a while to go.
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const auto is_there = [&] {
    const std::vector<int> alive = fake.alive();
    return std::find(alive.begin(), alive.end(), fake.started().at(0)) != alive.end();
  };
  while (is_there() && std::chrono::steady_clock::now() < latest) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(is_there());
  EXPECT_EQ(fake.folders(), 0U);
}

// A host that is killed while it has a server, or while it starts one.
TEST(MpsServerHost, DISABLED_HostStartsAServerAndIsKilled) {
  const char* const folder = std::getenv("CTXB_TEST_MPS");
  ASSERT_NE(folder, nullptr);
  setenv("CTXBROKER_TEST_HOST", std::to_string(getpid()).c_str(), 1);
  MpsServerOptions options;
  options.program = std::filesystem::path(folder) / "nvidia-cuda-mps-control";
  options.folder = std::filesystem::path(folder) / "s";
  const MpsServer server(options);
  std::puts("the server has started");
  std::fflush(stdout);
  kill(getpid(), SIGKILL);
}

TEST(MpsServerHost, KilledHostLeavesNoServer) {
  for (const bool starting : {false, true}) {
    const FakeMps fake({starting ? "kill -9 $CTXBROKER_TEST_HOST; sleep 600" : ":"});
    const ChildResult host = run_child("MpsServerHost.DISABLED_HostStartsAServerAndIsKilled",
                                       {{"CTXB_TEST_MPS", fake.folder().string()}});
    EXPECT_EQ(host.exit_code, -1) << host.output;
    EXPECT_EQ(host.output.find("the server has started") == std::string::npos, starting);
    EXPECT_THAT(fake.started(), SizeIs(starting ? 1 : 2));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (fake.folders() > 0 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    expect_nothing_left(fake);
  }
}

}  // namespace
}  // namespace ctxbroker
