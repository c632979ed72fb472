// SPDX-License-Identifier: Apache-2.0
// What a worker does for a host when nothing goes wrong, and what it refuses.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <list>
#include <sstream>
#include <thread>

#include "support/child_process.hpp"
#include "worker_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST_F(WorkerTest, StartsWithTheFirstCallAndAnswers) {
  Worker worker(options());
  EXPECT_EQ(worker.state(), WorkerState::missing);
  EXPECT_EQ(worker.process_id(), 0);
  EXPECT_EQ(say(worker, Act::echo, "hello"), "hello");
  EXPECT_EQ(worker.state(), WorkerState::ready);
  EXPECT_NE(worker.process_id(), 0);
  EXPECT_EQ(say(worker, Act::echo), "");
  const std::string longest(4096, 'l');
  EXPECT_EQ(say(worker, Act::echo, longest), longest);
  worker.close();
  EXPECT_EQ(worker.state(), WorkerState::closed);
  EXPECT_FALSE(worker.last_exit());
  EXPECT_TRUE(ends().empty());
  error_of(ErrorKind::wrong_state, [&] { say(worker, Act::echo); });
}

TEST_F(WorkerTest, RunsAProgramOfTheHosts) {
  WorkerOptions own = options();
  own.module.clear();
  own.program = worker_file("worker_own_program");
  Worker worker(own);
  std::uint64_t bytes = 0;
  EXPECT_EQ(worker.call({5, 0, "seven b", 7}, &bytes, sizeof bytes), sizeof bytes);
  EXPECT_EQ(bytes, 7U);
}

TEST_F(WorkerTest, AProgramStartedByHandSaysWhatItIs) {
  const ChildResult child = ChildProcess({{worker_file("worker_own_program")}, {}}).wait();
  EXPECT_EQ(child.exit_code, 2);
  EXPECT_THAT(child.output, HasSubstr("a host that starts it"));
}

constexpr int worker_socket = 3;
constexpr uid_t nobody = 65534;

// Starts the program on a socket that a process of this user has made, which then closes its end.
ChildResult start_on_socket_of(uid_t maker) {
  const std::string program = worker_file("worker_own_program");
  std::array<int, 2> pipe{};
  EXPECT_EQ(pipe2(pipe.data(), O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    std::array<int, 2> ends{};
    if (setresuid(-1, maker, -1) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0 ||
        setresuid(-1, 0, -1) != 0) {
      _exit(126);
    }
    // The program's socket comes last: its number may be that of another one.
    const int own = fcntl(ends[0], F_DUPFD_CLOEXEC, 10);
    const int output = fcntl(pipe[1], F_DUPFD_CLOEXEC, 10);
    close(ends[1]);
    dup2(output, STDERR_FILENO);
    dup2(own, worker_socket);
    execl(program.c_str(), program.c_str(), nullptr);
    _exit(127);
  }
  close(pipe[1]);
  ChildResult result;
  std::array<char, 400> piece{};
  for (ssize_t got = 0; (got = read(pipe[0], piece.data(), piece.size())) > 0;) {
    result.output.append(piece.data(), static_cast<std::size_t>(got));
  }
  close(pipe[0]);
  int ended = 0;
  EXPECT_EQ(waitpid(child, &ended, 0), child);
  if (WIFEXITED(ended)) result.exit_code = WEXITSTATUS(ended);
  return result;
}

TEST_F(WorkerTest, AConnectionFromAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const ChildResult refused = start_on_socket_of(nobody);
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("another user has made this program's socket"));
  // The control: the program of the same user listens to whoever is there, who has left.
  const ChildResult heard = start_on_socket_of(0);
  EXPECT_EQ(heard.exit_code, 3) << heard.output;
  EXPECT_THAT(heard.output, HasSubstr("the host's first packet"));
}

// Root may do everything in the process, whether it serves or not.
TEST_F(WorkerTest, AProgramThatGivesUpRootsRightsServesRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  WorkerOptions own = options("own", {"TEST_WORKER_USER=" + std::to_string(nobody)});
  own.module.clear();
  own.program = worker_file("worker_own_program");
  Worker worker(own);
  worker.start();
  struct stat about {};
  ASSERT_EQ(stat(("/proc/" + std::to_string(worker.process_id())).c_str(), &about), 0);
  EXPECT_EQ(about.st_uid, nobody);
}

TEST_F(WorkerTest, CallsTheModulesStop) {
  const auto file =
      std::filesystem::temp_directory_path() / ("ctxb_worker_stop_" + std::to_string(getpid()));
  WorkerOptions with = options("hostile", {"TEST_WORKER_STOP_FILE=" + file.string()});
  Worker worker(with);
  worker.start();
  worker.close();
  EXPECT_TRUE(std::filesystem::remove(file));
  EXPECT_TRUE(ends().empty());
}

TEST_F(WorkerTest, HandsErrorsOfTheModuleToTheHost) {
  Worker worker(options());
  EXPECT_THAT(error_of(ErrorKind::plugin_failed, [&] { say(worker, Act::fails); }),
              HasSubstr("the paint has dried"));
  EXPECT_THAT(error_of(ErrorKind::plugin_failed, [&] { say(worker, Act::throws); }),
              HasSubstr("thrown in the module"));
  // An answer that does not fit is refused inside the worker.
  EXPECT_THAT(error_of(ErrorKind::plugin_failed,
                       [&] {
                         worker.call({Act::echo, 0, "too long", 8}, nullptr, 0);
                       }),
              HasSubstr("without a text"));
  EXPECT_EQ(say(worker, Act::echo, "still here"), "still here");
  EXPECT_EQ(worker.exits(), 0U);
}

TEST_F(WorkerTest, WorkerRefusesBadOptions) {
  const auto refused = [&](auto change, ErrorKind kind = ErrorKind::invalid_argument) {
    WorkerOptions bad = options();
    change(bad);
    return error_of(kind, [&] { const Worker worker(bad); });
  };
  EXPECT_THAT(refused([](auto& o) { o.name.clear(); }), HasSubstr("name"));
  EXPECT_THAT(refused([](auto& o) { o.program = "/bin/true"; }), HasSubstr("not both"));
  EXPECT_THAT(refused([](auto& o) { o.message_bytes = 255; }), HasSubstr("message_bytes"));
  EXPECT_THAT(refused([](auto& o) { o.calls_at_once = 65; }), HasSubstr("calls_at_once"));
  EXPECT_THAT(refused([](auto& o) { o.threads = 0; }), HasSubstr("threads"));
  EXPECT_THAT(refused([](auto& o) { o.environment = {"=x"}; }), HasSubstr("NAME=VALUE"));
  EXPECT_THAT(refused([](auto& o) { o.module = "/no/such.so"; }, ErrorKind::plugin_not_found),
              HasSubstr("/no/such.so"));

  Worker worker(options());
  const std::string longer(4097, 'x');
  EXPECT_THAT(error_of(ErrorKind::invalid_argument, [&] { say(worker, Act::echo, longer); }),
              HasSubstr("lend a buffer"));
  error_of(ErrorKind::invalid_argument, [&] { worker.call({0xFFFF0000, 0, nullptr, 0}); });
  error_of(ErrorKind::invalid_argument, [&] { worker.call({Act::echo, 0, nullptr, 4}); });
  error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(worker.lend(0)); });
  error_of(ErrorKind::invalid_argument, [&] { static_cast<void>(worker.pass_descriptor(-1)); });
  EXPECT_EQ(worker.state(), WorkerState::missing);  // none of these started it
}

TEST_F(WorkerTest, WorkerTellsWhyItCannotStart) {
  WorkerOptions refusing = options("hostile", {"TEST_WORKER_START=refuse"});
  Worker worker(refusing);
  EXPECT_THAT(error_of(ErrorKind::plugin_load, [&] { worker.start(); }),
              HasSubstr("the module has no licence"));
  EXPECT_EQ(worker.state(), WorkerState::failed);
  EXPECT_THAT(worker.reason(), HasSubstr("the module has no licence"));
  error_of(ErrorKind::plugin_load, [&] { say(worker, Act::echo); });
  error_of(ErrorKind::plugin_load, [&] { worker.start(); });
  worker.pardon();
  EXPECT_EQ(worker.state(), WorkerState::missing);
  EXPECT_EQ(worker.exits(), 0U);

  WorkerOptions crashing =
      options("hostile", {"TEST_WORKER_START=" + std::to_string(Act::segfault)});
  Worker other(crashing);
  EXPECT_THAT(error_of(ErrorKind::plugin_load, [&] { other.start(); }), HasSubstr("SIGSEGV"));
  EXPECT_EQ(other.state(), WorkerState::failed);
  EXPECT_EQ(other.exits(), 1U);

  WorkerOptions hanging =
      options("hostile", {"TEST_WORKER_START=" + std::to_string(Act::deadlock)});
  hanging.start_timeout = std::chrono::milliseconds(300);
  Worker third(hanging);
  EXPECT_THAT(error_of(ErrorKind::plugin_load, [&] { third.start(); }),
              HasSubstr("did not end within 300 ms"));

  WorkerOptions no_module = options();
  no_module.module = worker_file("worker_own_program");
  Worker fourth(no_module);
  error_of(ErrorKind::plugin_load, [&] { fourth.start(); });
  WorkerOptions other_library = options();
  other_library.module = worker_file("../behaviours.so");
  if (std::filesystem::exists(other_library.module)) {
    Worker fifth(other_library);
    EXPECT_THAT(error_of(ErrorKind::plugin_load, [&] { fifth.start(); }),
                HasSubstr("does not export ctxb_worker_entry"));
  }
}

TEST_F(WorkerTest, SharesBlocksOfMemory) {
  Worker worker(options());
  WorkerBuffer block = worker.lend(1 << 20);
  auto* const values = static_cast<float*>(block.data());
  for (int i = 0; i < 1000; ++i) values[i] = static_cast<float>(i);
  EXPECT_EQ(ask(worker, Act::scale, block.handle(), 3), (1U << 20) / sizeof(float));
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(values[i], static_cast<float>(3 * i));
  EXPECT_EQ(ask(worker, Act::lent_blocks), 1U);
  EXPECT_TRUE(worker.is_lent(block.handle(), 1 << 20));
  EXPECT_FALSE(worker.is_lent(block.handle(), (1 << 20) + 1));

  // A new process has the same block, with what it holds.
  worker.kill("for a test");
  EXPECT_EQ(ask(worker, Act::scale, block.handle(), 2), (1U << 20) / sizeof(float));
  EXPECT_EQ(values[999], 6.0F * 999);
  EXPECT_EQ(ask(worker, Act::lent_blocks), 1U);

  const std::uint64_t old = block.handle();
  block = WorkerBuffer();
  EXPECT_EQ(ask(worker, Act::lent_blocks), 0U);
  EXPECT_FALSE(worker.is_lent(old, 1));
}

TEST_F(WorkerTest, WorkerTakesEndedBlocksBack) {
  Worker worker(options());
  std::uint64_t old = 0;
  {
    const WorkerBuffer block = worker.lend(64);
    old = block.handle();
  }
  EXPECT_EQ(ask(worker, Act::lent_blocks), 0U);
  EXPECT_FALSE(worker.is_lent(old, 1));
  EXPECT_THAT(error_of(ErrorKind::plugin_failed, [&] { ask(worker, Act::scale, old, 2); }),
              HasSubstr("there is no such block"));
  EXPECT_NE(worker.lend(64).handle(), old);
  EXPECT_THAT(error_of(ErrorKind::plugin_failed, [&] { static_cast<void>(worker.lend(4097)); }),
              HasSubstr("that is an odd size"));
  EXPECT_EQ(ask(worker, Act::lent_blocks), 0U);
  WorkerBuffer assigned = worker.lend(64), other = worker.lend(64);
  EXPECT_EQ(ask(worker, Act::lent_blocks), 2U);
  const std::uint64_t kept = other.handle();
  assigned = std::move(other);
  EXPECT_EQ(ask(worker, Act::lent_blocks), 1U) << "its own was given back at once";
  EXPECT_EQ(assigned.handle(), kept);
  EXPECT_EQ(other.data(), nullptr);  // NOLINT(bugprone-use-after-move): moved-from is empty
  const WorkerBuffer after_close = worker.lend(64);
  worker.close();
}

TEST_F(WorkerTest, PassesDescriptorsBothWays) {
  Worker worker(options());
  const int memory = memfd_create("memory", MFD_CLOEXEC);
  ASSERT_GE(memory, 0);
  const std::uint64_t number = worker.pass_descriptor(memory);
  ask(worker, Act::passes_back, number);
  int back = -1;
  for (int i = 0; i < 1000 && back < 0; ++i) {
    back = worker.take_descriptor(number + 1);
    if (back < 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_GE(back, 0);
  EXPECT_EQ(worker.take_descriptor(number + 1), -1);
  EXPECT_EQ(write(back, "x", 1), 1);
  char got = 0;
  EXPECT_EQ(pread(memory, &got, 1, 0), 1);
  EXPECT_EQ(got, 'x');
  for (const int one : {back, memory}) close(one);
}

TEST_F(WorkerTest, DeliversNotifications) {
  std::mutex mutex;
  std::condition_variable came;
  std::string text;
  WorkerOptions with = options();
  with.on_notification = [&](std::uint32_t type, const void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    EXPECT_EQ(type, 7U);
    text.assign(static_cast<const char*>(data), bytes);
    came.notify_all();
    throw std::runtime_error("a callback's exception is swallowed");
  };
  Worker worker(with);
  say(worker, Act::notifies, "ding");
  std::unique_lock lock(mutex);
  EXPECT_TRUE(came.wait_for(lock, std::chrono::seconds(5), [&] { return text == "ding"; }));
}

TEST_F(WorkerTest, TakesCallsOfManyThreads) {
  for (const unsigned threads : {1U, 3U}) {
    WorkerOptions many = options();
    many.calls_at_once = 3;
    many.threads = threads;
    Worker worker(many);
    std::atomic<int> good{0};
    std::vector<std::thread> callers;
    for (int i = 0; i < 6; ++i) {
      callers.emplace_back([&, i] {
        for (int k = 0; k < 200; ++k) {
          const std::string text = std::to_string(i) + ":" + std::to_string(k);
          if (say(worker, Act::echo, text) == text) ++good;
        }
      });
    }
    for (auto& caller : callers) caller.join();
    EXPECT_EQ(good, 1200);
  }
}

TEST_F(WorkerTest, SeveralThreadsHandleMessagesAtOnce) {
  WorkerOptions two = options();
  two.threads = 2;
  Worker worker(two);
  std::atomic<bool> awake{false};
  std::thread slow([&] {
    ask(worker, Act::sleeps, 1500);
    awake = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(say(worker, Act::echo, "quick"), "quick");
  EXPECT_FALSE(awake);
  slow.join();
}

TEST_F(WorkerTest, ACallThatFindsNoRoomIsNotTheWorkersFault) {
  WorkerOptions narrow = options();
  narrow.calls_at_once = 1;
  Worker worker(narrow);
  worker.start();
  std::thread slow([&] { ask(worker, Act::sleeps, 600); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_THAT(
      error_of(ErrorKind::wrong_state,
               [&] { worker.call({Act::echo}, nullptr, 0, std::chrono::milliseconds(50)); }),
      HasSubstr("calls_at_once"));
  slow.join();
  EXPECT_EQ(worker.exits(), 0U);
}

TEST_F(WorkerTest, WorkerProcessGetsOnlyTheGivenEnvironmentAndFiles) {
  setenv("TEST_WORKER_SECRET", "s3cret", 1);
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/run/own", 1);      // the host's, whose faults would be shared
  const int open_in_host = open("/dev/null", O_RDONLY);  // without O_CLOEXEC
  WorkerOptions with = options("hostile", {"TEST_WORKER_GIVEN=given", "HOME=/elsewhere"});
  with.file_limit = 64;
  Worker worker(with);
  EXPECT_EQ(say(worker, Act::environment, "TEST_WORKER_SECRET"), "");
  EXPECT_EQ(say(worker, Act::environment, "TEST_WORKER_GIVEN"), "given");
  EXPECT_EQ(say(worker, Act::environment, "HOME"), "/elsewhere");
  EXPECT_EQ(say(worker, Act::environment, "CUDA_MPS_PIPE_DIRECTORY"), "/dev/null");
  unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  EXPECT_EQ(ask(worker, Act::descriptors), 0b1111U);  // the standard ones and the socket
  const auto ids = ask<std::array<std::int32_t, 2>>(worker, Act::group);
  EXPECT_EQ(ids[0], worker.process_id());
  EXPECT_EQ(ids[1], ids[0]);  // a group of its own
  std::ifstream limits("/proc/" + std::to_string(worker.process_id()) + "/limits");
  const std::string text((std::istreambuf_iterator<char>(limits)), {});
  EXPECT_THAT(text, ::testing::ContainsRegex("Max open files +64 +64"));
  EXPECT_THAT(text, ::testing::ContainsRegex("Max core file size +0 +0"));
  close(open_in_host);
}

TEST_F(WorkerTest, PrintedTextIsRecordedAndDoesNotStopTheWorker) {
  Worker worker(options());
  say(worker, Act::prints);
  EXPECT_EQ(say(worker, Act::echo, "on"), "on");
  worker.kill("for a test");
  EXPECT_THAT(records(), Contains(HasSubstr("debug hostile: it printed: line 17 of far too much")));
  EXPECT_LT(records().size(), 220U);
  EXPECT_THAT(wait_for_end().output, HasSubstr("line 99999 of far too much text"));
  EXPECT_LE(wait_for_end().output.size(), 4096U);
}

TEST_F(WorkerTest, ACallbackMustNotCall) {
  Worker* self = nullptr;
  std::string text;
  WorkerOptions with = options();
  with.on_exit = [&](const WorkerExit&) {
    text = error_of(ErrorKind::wrong_state, [&] { self->start(); });
  };
  Worker worker(with);
  self = &worker;
  worker.start();
  worker.kill("for a test");
  worker.close();
  EXPECT_THAT(text, HasSubstr("a callback of this worker must not call it"));
}

// A thread that starts a worker may end: the worker lives on.
TEST_F(WorkerTest, OutlivesTheThreadThatStartedIt) {
  Worker worker(options());
  std::thread([&] { worker.start(); }).join();
  const int id = worker.process_id();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(say(worker, Act::echo, "alive"), "alive");
  EXPECT_EQ(worker.process_id(), id);
}

// In a child: a worker for each of these words, and a process that nothing ends.
TEST_F(WorkerTest, DISABLED_HostStartsWorkersAndDies) {
  const char* const words = std::getenv("TEST_WORKER_WORDS");
  ASSERT_NE(words, nullptr);
  std::list<Worker> workers;
  std::istringstream all(words);
  for (std::string word; all >> word;) {
    Worker& worker = workers.emplace_back(options(word));
    worker.start();
    if (word == "stopped") kill(worker.process_id(), SIGSTOP);
    if (word == "deadlock") std::thread([&] { worker.call({Act::deadlock}); }).detach();
    if (word == "endless") std::thread([&] { worker.call({Act::endless}); }).detach();
    if (word == "held") std::thread([&] { worker.call({Act::holds_others}); }).detach();
    std::printf("worker %d.\n", worker.process_id());
  }
  const pid_t plain = fork();
  if (plain == 0) {
    close_range(0, ~0U, 0);
    sleep(60);
    _exit(0);
  }
  std::printf("plain %d.\n", plain);
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until they do it
  kill(getpid(), SIGKILL);
}

TEST_F(WorkerTest, DiesWithItsHost) {
  for (const std::string words :
       {"idle", "deadlock", "endless", "held", "stopped", "idle deadlock endless held stopped"}) {
    const ChildResult child =
        run_child("WorkerTest.DISABLED_HostStartsWorkersAndDies", {{"TEST_WORKER_WORDS", words}});
    const auto count = std::count(words.begin(), words.end(), ' ') + 1;
    const std::vector<int> workers = numbers_after("worker ", child.output);
    ASSERT_EQ(workers.size(), count) << child.output;
    for (const int one : workers) {
      if (dies(one, std::chrono::seconds(5))) continue;
      ADD_FAILURE() << words << ": " << one << " lives";
      kill(one, SIGKILL);
    }
    // The control.
    const std::vector<int> plain = numbers_after("plain ", child.output);
    ASSERT_EQ(plain.size(), 1U) << child.output;
    EXPECT_FALSE(dies(plain[0]));
    kill(plain[0], SIGKILL);
  }
}

}  // namespace
}  // namespace ctxbroker
