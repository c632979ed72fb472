// SPDX-License-Identifier: Apache-2.0
// Who is named when something goes wrong: faults of kernels with their place, crashes, and calls
// that do not return. What ends a process runs in a child.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "broker_fixture.hpp"
#include "ctxbroker/crash_report.hpp"
#include "ctxbroker/host.h"
#include "ctxbroker/running_call.hpp"
#include "support/child_process.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class BlameChildTest : public BrokerTest {
 protected:
  static std::string from_environment(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  }
  PluginInstance made(const std::string& library) {
    PluginInstance instance = broker.create(broker.load(test_plugin(library)), library);
    return instance;
  }
  bool on_software() const { return broker.driver().kind == DriverChoice::software; }
};

std::string child(const std::string& test, const Environment& environment = {}) {
  const ChildResult result = run_child("BlameChildTest.DISABLED_" + test, environment);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  return result.output;
}

// --- faults ------------------------------------------------------------------------------------

TEST_F(BlameChildTest, DISABLED_AFaultIsDescribed) {
  if (from_environment("CTXB_TEST_MEMORY") == "driver") reopen_with(MemorySource::driver);
  PluginInstance faulty = made("memory_faults"), before = active("affine"), after = active("bias");
  faulty.set_parameter("freed", from_environment("CTXB_TEST_FREED") == "1" ? 1 : 0);
  faulty.activate(test_sizes);
  GraphOptions options;
  options.name_faults = from_environment("CTXB_TEST_MARKS") != "0";
  Graph graph(broker, {&before, &faulty, &after}, test_sizes, options);
  run({&before, &faulty, &after});
  faulty.set_parameter("access", std::stod(from_environment("CTXB_TEST_ACCESS")));
  faulty.set_parameter("offset", std::stod(from_environment("CTXB_TEST_OFFSET")));
  faulty.set_parameter("null", from_environment("CTXB_TEST_NULL") == "1" ? 1 : 0);
  std::vector<float> pixels(8 * 4 * 4);
  JobInfo job;
  job.width = 8;
  job.height = 4;
  const std::string text = error_text(ErrorKind::context_lost,
                                      [&] { graph.process(pixels.data(), pixels.data(), job); });
  std::printf("ERROR %s\n", text.c_str());
  for (const std::string& record : said("fault")) std::printf("RECORD %s\n", record.c_str());
  if (options.name_faults || broker.driver().kind == DriverChoice::software) {
    EXPECT_THAT(text, AllOf(HasSubstr("the work of plug-in memory_faults failed (kernel touch)"),
                            Not(HasSubstr("affine")), Not(HasSubstr("bias"))));
  } else {
    EXPECT_THAT(text,
                HasSubstr("the work of one of the plug-ins affine, memory_faults, bias failed "
                          "(affine: kernel affine; memory_faults: kernel touch; bias:"));
  }
  for (PluginInstance* one : {&faulty, &before, &after}) one->deactivate();
  std::printf("BLAME");
  for (const std::string& record : said("plugin")) std::printf(" %s;", record.c_str());
  std::printf("\n");
}

struct FaultCase {
  const char* name;
  Environment environment;
  const char* expected;  // on the software device, a regular expression
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name
void PrintTo(const FaultCase& one, std::ostream* out) {
  *out << one.name;
}

class BlameFaultTest : public ::testing::TestWithParam<FaultCase> {};

// A GPU finds only accesses to pages that nobody has.
TEST_P(BlameFaultTest, FaultReportNamesKernelLineThreadAndMemory) {
  const bool on_software = Broker::open().driver().kind == DriverChoice::software;
  const bool is_null = std::string(GetParam().name).rfind("null", 0) == 0;
  if (!on_software && !is_null) GTEST_SKIP() << "only the software device checks each byte";
  const std::string output = child("AFaultIsDescribed", GetParam().environment);
  if (on_software) {
    EXPECT_THAT(output, ContainsRegex(std::string("ERROR .*") + GetParam().expected));
    EXPECT_THAT(output, ContainsRegex(std::string("RECORD .*") + GetParam().expected));
    EXPECT_THAT(output, HasSubstr("context lost, guilty"));
  }
}

// POSIX regular expressions.
#define CTXB_PLACE \
  "kernel touch of tenant memory_faults, block \\(0, 0, 0\\), thread \\(3, 0, 0\\): "
#define CTXB_BUFFER "4096 bytes at 0x[0-9a-f]+ of tenant memory_faults"
const FaultCase fault_cases[] = {
    {"past_the_end",
     {{"CTXB_TEST_ACCESS", "1"}, {"CTXB_TEST_OFFSET", "1025"}},
     CTXB_PLACE "write of 4 bytes at illegal address 0x[0-9a-f]+, 4 bytes past the end of "  //
     CTXB_BUFFER " \\([^ ]*/memory_faults/memory_faults.cu:16\\)"},
    {"before_the_beginning",
     {{"CTXB_TEST_ACCESS", "3"}, {"CTXB_TEST_OFFSET", "-1"}},
     CTXB_PLACE "atomic access of 4 bytes at illegal address 0x[0-9a-f]+, 4 bytes before "  //
     CTXB_BUFFER " \\([^ ]*, inlined at [^ ]*/memory_faults.cu:18\\)"},
    {"inlined",
     {{"CTXB_TEST_ACCESS", "2"}, {"CTXB_TEST_OFFSET", "1024"}},
     "read of 4 bytes .*\\([^ ]*/memory_faults.cu:8, inlined at [^ ]*/memory_faults.cu:17\\)"},
    {"freed",
     {{"CTXB_TEST_ACCESS", "2"},
      {"CTXB_TEST_OFFSET", "1"},
      {"CTXB_TEST_FREED", "1"},
      {"CTXB_TEST_MEMORY", "driver"}},
     "in " CTXB_BUFFER ", which tenant memory_faults freed"},
    {"freed_in_a_pool",
     {{"CTXB_TEST_ACCESS", "2"}, {"CTXB_TEST_OFFSET", "1"}, {"CTXB_TEST_FREED", "1"}},
     "in " CTXB_BUFFER ", which tenant memory_faults freed"},
    {"null",
     {{"CTXB_TEST_ACCESS", "1"}, {"CTXB_TEST_OFFSET", "0"}, {"CTXB_TEST_NULL", "1"}},
     "illegal address 0x0, a null pointer"},
    // The software device knows whose kernel it was. A GPU names all.
    {"null_without_marks",
     {{"CTXB_TEST_ACCESS", "1"},
      {"CTXB_TEST_OFFSET", "0"},
      {"CTXB_TEST_NULL", "1"},
      {"CTXB_TEST_MARKS", "0"}},
     "illegal address 0x0, a null pointer"},
};
#undef CTXB_PLACE
#undef CTXB_BUFFER

INSTANTIATE_TEST_SUITE_P(Faults, BlameFaultTest, ::testing::ValuesIn(fault_cases),
                         [](const auto& given) { return std::string(given.param.name); });

// The fault is noticed in whichever call comes next, which may be about another job.
TEST_F(BlameChildTest, DISABLED_OneOfSeveralJobsFaults) {
  PluginInstance faulty = made("memory_faults"), before = active("affine");
  faulty.activate(test_sizes);
  GraphOptions options;
  options.jobs_in_flight = 4;
  Graph graph(broker, {&before, &faulty}, test_sizes, options);
  std::vector<std::vector<float>> pixels(4, std::vector<float>(8 * 4 * 4));
  JobInfo job;
  job.width = 8;
  job.height = 4;
  const std::string text = error_text(ErrorKind::context_lost, [&] {
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      job.position = 70 + static_cast<std::int64_t>(i);
      faulty.set_parameter("null", job.position == 72 ? 1 : 0);
      faulty.set_parameter("access", job.position == 72 ? 1 : 0);
      last = graph.submit({{pixels[i].data()}, {pixels[i].data()}}, job);
    }
    graph.finish(last);
  });
  EXPECT_THAT(text, HasSubstr("the work of plug-in memory_faults failed (kernel touch) at position "
                              "72: "));
}

TEST(BlamePositionTest, FaultNamesThePositionOfItsJob) {
  child("OneOfSeveralJobsFaults");
}

// --- crashes -----------------------------------------------------------------------------------

void previous_handler(int number, siginfo_t* info, void*) {
  char text[64];
  const int length = std::snprintf(text, sizeof text, "the host's handler: %d, address %s\n",
                                   number, info->si_addr == nullptr ? "null" : "not null");
  static_cast<void>(!write(STDERR_FILENO, text, static_cast<std::size_t>(length)));
  signal(number, SIG_DFL);
  raise(number);
}

// The plug-in does what CTXB_TEST_CRASH says.
TEST_F(BlameChildTest, DISABLED_APluginCrashes) {
  if (from_environment("CTXB_TEST_HOST_HANDLER") == "1") {
    struct sigaction action = {};
    action.sa_sigaction = previous_handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (const int number : {SIGSEGV, SIGABRT}) sigaction(number, &action, nullptr);
  }
  name_crashes(from_environment("CTXB_TEST_NAMING") != "0");
  const auto work = [this] {
    PluginInstance instance = made("crashes");
    instance.activate(test_sizes);
    const std::string then = from_environment("CTXB_TEST_THEN");
    if (!then.empty()) setenv("CTXB_TEST_CRASH", then.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    run({&instance});
    for (const std::string& record : said("crash")) std::fprintf(stderr, "%s\n", record.c_str());
    if (from_environment("CTXB_TEST_HOST_CRASHES") == "1") raise(SIGSEGV);
    if (from_environment("CTXB_TEST_HOST_CRASHES") == "2") {
      int* volatile nowhere = nullptr;
      *nowhere = 1;  // NOLINT(clang-analyzer-core.NullDereference): that is the test
    }
  };
  work();
}

ChildResult crash(const std::string& what, Environment environment = {}) {
  environment.emplace_back("CTXB_TEST_CRASH", what);
  environment.insert(environment.end(), signals_stay_signals.begin(), signals_stay_signals.end());
  environment.emplace_back("LSAN_OPTIONS", "detect_leaks=0");
  ChildResult ended = run_child("BlameChildTest.DISABLED_APluginCrashes", environment);
  EXPECT_EQ(ended.exit_code, -1) << "a signal ends it\n" << ended.output;
  return ended;
}

std::size_t lines_with(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

constexpr const char* plugin_words = "ctxbroker: plug-in com.example.test.crashes (";

TEST(BlameCrashTest, EachSignalInAPluginNamesIt) {
  const std::pair<const char*, const char*> rows[] = {
      {"segv", "crashed in process on thread [0-9]+ with SIGSEGV at address 0x0\\."},
      {"bus", "crashed in process on thread [0-9]+ with SIGBUS at address 0x[0-9a-f]+\\."},
      {"fpe", "crashed in process on thread [0-9]+ with SIGFPE"},
      {"ill", "crashed in process on thread [0-9]+ with SIGILL"},
      {"abort", "crashed in process, in code that it called, on thread [0-9]+ with SIGABRT\\."},
      {"c_library", "crashed in process.* with SIGSEGV at address 0x0"},
      {"overflow", "crashed in process on thread [0-9]+ with SIGSEGV"}};
  for (const auto& [way, expected] : rows) {
#ifdef __SANITIZE_ADDRESS__
    if (std::string(way) == "overflow") continue;  // its frames are elsewhere
#endif
    const ChildResult ended = crash(std::string("process:") + way);
    EXPECT_THAT(ended.output,
                AllOf(HasSubstr(plugin_words), HasSubstr("crashes.so)"), ContainsRegex(expected)))
        << way;
    EXPECT_EQ(lines_with(ended.output, "ctxbroker:"), 1u) << ended.output;
  }
}

TEST(BlameCrashTest, CrashReportNamesTheFunction) {
  for (const char* function : {"create", "activate", "deactivate"}) {
    EXPECT_THAT(crash(std::string(function) + ":segv").output,
                AllOf(HasSubstr(plugin_words), HasSubstr(std::string("crashed in ") + function)));
  }
  EXPECT_THAT(crash("dlopen:segv").output, ContainsRegex("ctxbroker: plug-in library [^ ]*crashes"
                                                         "\\.so crashed in dlopen"));
}

TEST(BlameCrashTest, CrashOfAThreadOfThePluginNamesTheLibrary) {
  for (const char* way : {"thread", "thread_abort", "thread_throw", "thread_c_library"}) {
    EXPECT_THAT(crash(std::string("process:") + way).output,
                ContainsRegex("ctxbroker: plug-in library [^ ]*crashes\\.so crashed outside of its "
                              "functions on thread"))
        << way;
  }
}

TEST(BlameCrashTest, TwoThreadsMayCrashAtOnce) {
  EXPECT_THAT(crash("process:both").output, HasSubstr("crashes.so"));
}

TEST(BlameCrashTest, PreviousSignalHandlerStillRuns) {
  const Environment handler{{"CTXB_TEST_HOST_HANDLER", "1"}};
  EXPECT_THAT(crash("process:segv", handler).output,
              AllOf(HasSubstr(plugin_words), HasSubstr("the host's handler: 11, address null")));
  EXPECT_THAT(crash("process:abort", handler).output,
              AllOf(HasSubstr(plugin_words), HasSubstr("the host's handler: 6")));
}

// The positive control: nothing is said of what was not asked for.
TEST(BlameCrashTest, CrashIsNotReportedWhileNamingIsOff) {
  EXPECT_THAT(
      crash("process:segv", {{"CTXB_TEST_NAMING", "0"}, {"CTXB_TEST_HOST_HANDLER", "1"}}).output,
      AllOf(Not(HasSubstr("ctxbroker:")), HasSubstr("the host's handler: 11")));
}

TEST(BlameCrashTest, CrashOfTheHostIsNotReported) {
  for (const char* way : {"1", "2"}) {
    EXPECT_THAT(
        crash("nowhere:segv", {{"CTXB_TEST_HOST_CRASHES", way}, {"CTXB_TEST_HOST_HANDLER", "1"}})
            .output,
        AllOf(Not(HasSubstr("ctxbroker:")), HasSubstr("the host's handler: 11")));
  }
}

TEST(BlameCrashTest, PluginThatReplacesTheSignalHandlerIsRecorded) {
  EXPECT_THAT(crash("activate:replace", {{"CTXB_TEST_HOST_CRASHES", "2"}}).output,
              AllOf(HasSubstr("code of the library has replaced the handler of SIGSEGV"),
                    HasSubstr("the plug-in's handler")));
}

TEST(BlameCrashTest, SignalStackThatAPluginHasFreedHidesNoCrash) {
  const Environment then{{"CTXB_TEST_THEN", "process:segv"}, {"CTXB_TEST_HOST_HANDLER", "1"}};
  EXPECT_THAT(crash("activate:signal_stack", then).output,
              AllOf(HasSubstr(plugin_words), HasSubstr("the host's handler: 11")));
  Environment without = then;
  without.emplace_back("CTXB_TEST_NAMING", "0");
  EXPECT_THAT(crash("activate:signal_stack", without).output, Not(HasSubstr("the host's handler")))
      << "the control: no handler can run";
}

TEST(BlameCrashTest, SwitchingOffBringsTheHandlersBack) {
  struct sigaction before = {}, during = {}, after = {};
  sigaction(SIGSEGV, nullptr, &before);
  name_crashes(true);
  name_crashes(true);
  sigaction(SIGSEGV, nullptr, &during);
  ctxb_name_crashes(0);
  sigaction(SIGSEGV, nullptr, &after);
  EXPECT_EQ(after.sa_handler, before.sa_handler);
  EXPECT_NE(during.sa_handler, before.sa_handler);
}

// --- calls that do not return ------------------------------------------------------------------

TEST_F(BlameChildTest, DISABLED_ACallThatDoesNotReturnIsNamed) {
  std::thread endless([this] {
    PluginInstance instance = made("crashes");
    instance.activate(test_sizes);
    run({&instance});
  });
  endless.detach();
  std::vector<RunningCall> calls;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < deadline) {
    calls = running_calls();
    if (calls.size() == 1 && calls[0].elapsed > std::chrono::milliseconds(100)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(calls[0].plugin, "com.example.test.crashes");
  EXPECT_THAT(calls[0].library, HasSubstr("crashes.so"));
  EXPECT_EQ(calls[0].function, from_environment("CTXB_TEST_FUNCTION"));
  EXPECT_NE(calls[0].thread, static_cast<std::uint64_t>(getpid())) << "another thread's";
  EXPECT_GT(calls[0].elapsed, std::chrono::milliseconds(100));
  std::string by_c;
  EXPECT_EQ(ctxb_running_calls(
                [](void* data, const ctxb_running_call* call) {
                  auto& text = *static_cast<std::string*>(data);
                  text += std::string(call->plugin) + " " + call->function + " " +
                          (call->elapsed_ns > 100'000'000 ? "long" : "short");
                },
                &by_c),
            CTXB_OK);
  EXPECT_EQ(by_c, "com.example.test.crashes " + calls[0].function + " long");
  EXPECT_EQ(ctxb_running_calls(nullptr, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  std::printf("named\n");
  std::fflush(stdout);
  _exit(0);  // the thread never ends
}

TEST(BlameRunningTest, ACallThatDoesNotReturnIsNamed) {
  for (const char* function : {"create", "activate", "process"}) {
    const std::string output = child("ACallThatDoesNotReturnIsNamed",
                                     {{"CTXB_TEST_CRASH", std::string(function) + ":endless"},
                                      {"CTXB_TEST_FUNCTION", function}});
    EXPECT_THAT(output, HasSubstr("named\n"));
  }
}

class BlameRunningHereTest : public BrokerTest {};

// Work that does not end is waited for: the plug-in is named although none of its functions runs.
TEST_F(BlameRunningHereTest, AWaitForWorkIsNamed) {
  PluginInstance instance = active("lingers");
  std::atomic<bool> done{false};
  std::thread host([&] {
    Graph graph(broker, {&instance}, test_sizes);
    float pixel[4] = {1, 2, 3, 4};
    graph.process(pixel, pixel, {});
    done = true;
  });
  bool named = false;
  while (!done) {
    for (const RunningCall& call : running_calls()) {
      named = named ||
              (call.plugin == "com.example.test.lingers" && call.function == "work on the device");
    }
    std::this_thread::yield();
  }
  host.join();
  EXPECT_TRUE(named);
  EXPECT_TRUE(running_calls().empty()) << "nothing runs any more";
}

TEST_F(BlameRunningHereTest, EndedThreadsLeaveNoRunningCall) {
  PluginInstance instance = active("affine");
  for (int round = 0; round < 50; ++round) {
    std::thread([&] {
      instance.deactivate();
      instance.activate(test_sizes);
    }).join();
    EXPECT_TRUE(running_calls().empty());
  }
}

}  // namespace
}  // namespace ctxbroker
