// SPDX-License-Identifier: Apache-2.0
// Every function of NVIDIA's runtime library, in each kind of lease and with both of its
// libraries: a tenant gets what a bare process gets, or the table of allowed differences says why
// not. CTXB_RUNTIME_TABLE=FILE also writes docs/runtime_functions.md.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <thread>

#include "ctxbroker/broker.hpp"
#include "runtime_functions.hpp"
#include "runtime_functions/runtime_functions.h"
#include "support/child_process.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

std::string variable(const char* name) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text != nullptr ? text : "";
}

std::filesystem::path library_of(const std::string& mode) {
  return test_library("runtime_functions_" + mode);
}

std::string why_not(const std::string& mode) {
  if (!std::filesystem::exists(library_of(mode)))
    return "the toolkit that this was built with is older than CUDA 13 or has no " + mode +
           " libcudart";
  return "";
}

// ---- in a child process -----------------------------------------------------------------------

struct Functions {
  runtime_function_count* count;
  runtime_function_name* name;
  runtime_function_run* run;
  runtime_functions_declared* declared;

  template <typename Symbol>
  explicit Functions(const Symbol& symbol)
      : count(reinterpret_cast<runtime_function_count*>(symbol(RUNTIME_FUNCTION_COUNT))),
        name(reinterpret_cast<runtime_function_name*>(symbol(RUNTIME_FUNCTION_NAME))),
        run(reinterpret_cast<runtime_function_run*>(symbol(RUNTIME_FUNCTION_RUN))),
        declared(
            reinterpret_cast<runtime_functions_declared*>(symbol(RUNTIME_FUNCTIONS_DECLARED))) {}
};

CUcontext lease_context = nullptr;
int running = 0;

void look_at_memory(const void* address) {
  const CUcontext of = context_of(reinterpret_cast<CUdeviceptr>(address));
  if (of != nullptr && of != lease_context) {
    std::printf("@OUTSIDE memory of context %p, the lease's is %p\n", static_cast<void*>(of),
                static_cast<void*>(lease_context));
  }
}

// Says which function is called before the call, so that the parent knows if it is the last.
template <typename Call>
void run_each(const Functions& functions, const Call& call) {
  const int count = functions.count();
  for (running = std::atoi(variable("CTXB_RUNTIME_FROM").c_str()); running < count; ++running) {
    std::printf("@CALL %d %s\n", running, functions.name(running));
    std::fflush(stdout);
    char text[8192] = "";
    const auto strikes = call(running, text, sizeof text);
    std::printf("@ANSWER %s", text);
    if (strikes != 0) std::printf(" strikes=%llu", static_cast<unsigned long long>(strikes));
    std::printf("\n");
    std::fflush(stdout);
  }
}

void run_bare(const std::string& mode) {
  void* library = dlopen(library_of(mode).c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const Functions functions([&](const char* name) { return dlsym(library, name); });
  run_each(functions, [&](int entry, char* text, std::size_t size) {
    functions.run(entry, nullptr, text, size);
    return 0;
  });
}

// Warnings and errors, so that the parent can say what a strike was for.
void say(const Record& record) {
  if (record.severity < Severity::warning) return;
  std::printf("@SAID %s: %s\n", record.topic, record.text.c_str());
  std::fflush(stdout);
}

void report_put_off(const Broker& broker) {
  for (const PutOffMetrics& left : broker.metrics().put_off) {
    std::printf("@LEFT %llu of %s\n", static_cast<unsigned long long>(left.count),
                left.what.c_str());
  }
}

void run_leased(const std::string& mode, const LeaseChoice& lease) {
  BrokerOptions options;
  options.records = say;
  Broker broker = Broker::open(options);
  const int version = broker.driver().version;
  std::printf("@DEVICE %s, driver for CUDA %d.%d\n", broker.devices()[0].name.c_str(),
              version / 1000, version % 1000 / 10);
  Tenant tenant = broker.open_tenant("caller", {lease});
  const AdoptedLibrary library = tenant.adopt(library_of(mode));
  const Functions functions([&](const char* name) { return library.symbol(name); });
  lease_context = tenant.lease().context;
  ASSERT_EQ(tenant.lease().granted.kind, lease.kind) << tenant.lease().reason;
  run_each(functions, [&](int entry, char* text, std::size_t size) {
    const std::uint64_t before = tenant.strikes();
    tenant.run(0, [&] { functions.run(entry, look_at_memory, text, size); });
    return tenant.strikes() - before;
  });
  const std::uint64_t strikes = tenant.strikes();
  tenant.close();
  if (tenant.strikes() != strikes) std::printf("@LEFT %s\n", "a strike");
  for (int i = 0; i < 100 && !broker.metrics().put_off.empty(); ++i) {
    broker.poll();
    std::this_thread::sleep_for(milliseconds(10));
  }
  report_put_off(broker);
}

TEST(RuntimeFunctions, DISABLED_CallsAll) {
  const std::string place = variable("CTXB_RUNTIME_PLACE"), mode = variable("CTXB_RUNTIME_MODE");
  if (place == bare) {
    run_bare(mode);
  } else {
    run_leased(mode, parse_lease_choice(place).value());
  }
  std::printf("@DONE\n");
}

// ---- in the parent ----------------------------------------------------------------------------

// The line in which GoogleTest says why a test ended.
std::string line_with_exception(const std::string& text) {
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);)
    if (line.find("exception") != std::string::npos) last = line;
  return last;
}

// Reads one child's output into the results. Returns the entry after the last one that it called.
int read_output(const ChildResult& child, int from, FunctionResults& results) {
  std::istringstream lines(child.output);
  std::string name;
  bool answered = true, done = false;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string tag, rest;
    words >> tag;
    if (tag == "@CALL") {
      words >> from >> name;
      ++from;
      results.names.push_back(name);
      answered = false;
    } else if (tag == "@ANSWER") {
      std::getline(words >> std::ws, rest);
      results.answers[name] = rest;
      answered = true;
    } else if (tag == "@OUTSIDE" || tag == "@LEFT") {
      results.complaints.push_back((tag == "@LEFT" ? "after close" : name) + ": " + line.substr(1));
    } else if (tag == "@SAID") {
      results.said[answered ? "" : name] += "\n    " + line.substr(1);
    } else if (tag == "@DEVICE") {
      results.device = line.substr(line.find(' ') + 1);
    } else if (tag == "@DONE") {
      done = true;
    }
  }
  if (!answered) {
    results.answers[name] = child.timed_out ? "does not return"
                            : child.signal != 0
                                ? "ends the process by signal " + std::to_string(child.signal)
                                : "ends the process: " + line_with_exception(child.output);
  } else if (!done || child.exit_code != 0) {
    results.why_not = child.output;
  }
  return answered ? -1 : from;
}

FunctionResults run_functions(const std::string& place, const std::string& mode) {
  FunctionResults results;
  for (int from = 0; from >= 0;) {
    Environment environment{{"CTXB_RUNTIME_PLACE", place},
                            {"CTXB_RUNTIME_MODE", mode},
                            {"CTXB_RUNTIME_FROM", std::to_string(from)}};
    // Without a broker "libcuda.so.1" is found as on any machine; here that is the software device.
    if (driver_is_software() && place == bare)
      environment.emplace_back("LD_LIBRARY_PATH", software_device_folder().string());
    ChildProcess child(test_again("RuntimeFunctions.DISABLED_CallsAll", environment));
    from = read_output(child.wait(minutes(2)), from, results);
  }
  return results;
}

}  // namespace

const std::vector<LeasePlace>& lease_places() {
  static const std::vector<LeasePlace> all = {
      {"shared", in_shared, LeaseChoice(LeaseKind::shared)},
      {"private", in_private, LeaseChoice(LeaseKind::private_own)},
      {"green", in_green, LeaseChoice(LeaseKind::green)},
      {"green:16", in_partition, LeaseChoice(LeaseKind::green, 16)}};
  return all;
}

const FunctionResults& functions_in(const std::string& place, const std::string& link_mode) {
  static std::map<std::pair<std::string, std::string>, FunctionResults> all;
  const auto key = std::make_pair(place, link_mode);
  const auto found = all.find(key);
  if (found != all.end()) return found->second;
  return all[key] = run_functions(place, link_mode);
}

namespace {

class RuntimeFunctionList : public ::testing::TestWithParam<std::string> {};

// Loads the library, which makes no call, and so needs no driver.
TEST_P(RuntimeFunctionList, EveryFunctionOfTheHeaderIsCalledOnce) {
  if (const auto why = why_not(GetParam()); !why.empty()) GTEST_SKIP() << why;
  void* library = dlopen(library_of(GetParam()).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr && GetParam() == "shared")
    GTEST_SKIP() << "no shared runtime library on this machine: " << dlerror();
  ASSERT_NE(library, nullptr) << dlerror();
  const Functions functions([&](const char* name) { return dlsym(library, name); });
  std::multiset<std::string> called, declared;
  for (int i = 0; i < functions.count(); ++i) called.insert(functions.name(i));
  for (const char* const* name = functions.declared(); *name != nullptr; ++name)
    declared.insert(*name);
  EXPECT_GT(declared.size(), 300U) << "CMake has read the header";
  EXPECT_THAT(called, ::testing::ElementsAreArray(declared));
}

TEST(RuntimeFunctionComparison, DifferenceIsFoundUnlessItIsMeantAndMustThenBeThere) {
  FunctionResults alone, leased;
  alone.names = leased.names = {"a", "b", "c"};
  alone.answers = {{"a", "cudaSuccess"}, {"b", "cudaSuccess"}, {"c", "cudaSuccess"}};
  leased.answers = alone.answers;
  EXPECT_THAT(compare(alone, leased, in_green, {}), ::testing::IsEmpty());
  leased.answers["b"] = "cudaErrorUnknown";
  const auto found = compare(alone, leased, in_green, {{"b", in_private, ""}});
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0], ::testing::AllOf(::testing::HasSubstr("alone: cudaSuccess"),
                                         ::testing::HasSubstr("lease: cudaErrorUnknown")));
  EXPECT_THAT(compare(alone, leased, in_green, {{"b", in_green, ""}}), ::testing::IsEmpty());
  EXPECT_THAT(compare(alone, leased, in_green, {{"b", in_green, ""}, {"c", in_green, ""}}),
              ::testing::ElementsAre(::testing::HasSubstr("c is as alone")));
  leased.names.pop_back();
  EXPECT_THAT(compare(alone, leased, in_green, {{"b", in_green, ""}}),
              ::testing::ElementsAre("other functions have run"));
}

TEST(RuntimeFunctionPage, TellsOnlyThePartsThatDiffer) {
  using Parts = std::vector<DifferentPart>;
  const std::string alone =
      "cudaSuccess now=2 cudaSuccess then=1 left=cudaSuccess work=cudaSuccess";
  EXPECT_EQ(different_parts(alone, alone), Parts());
  EXPECT_EQ(different_parts(
                "cudaSuccess now=1 cudaErrorUnknown then=1 left=cudaErrorUnknown work=cudaSuccess",
                alone),
            (Parts{{"cudaErrorUnknown", "cudaSuccess"}, {"now=1", "now=2"}}));
  EXPECT_EQ(different_parts("cudaSuccess left=cudaErrorUnknown work=cudaSuccess strikes=1",
                            "cudaSuccess left=cudaSuccess work=cudaSuccess"),
            (Parts{{"strikes=1", "nothing"}}));
  EXPECT_EQ(different_parts("left=cudaErrorUnknown", "left=cudaSuccess"),
            (Parts{{"left=cudaErrorUnknown", "left=cudaSuccess"}}));
  EXPECT_EQ(different_parts("does not return", alone), (Parts{{"does not return", alone}}));
}

struct Case {
  LeasePlace place;
  std::string mode;
  // NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name
  friend void PrintTo(const Case& one, std::ostream* stream) {
    *stream << one.place.name << ", " << one.mode << " library";
  }
};

class RuntimeFunctionsTest : public ::testing::TestWithParam<Case> {};

TEST_P(RuntimeFunctionsTest, TenantGetsWhatABareProcessGets) {
  const auto& [place, mode] = GetParam();
  for (const auto& why : {why_no_runtime_library(), why_not(mode)})
    if (!why.empty()) GTEST_SKIP() << why;
  const FunctionResults &alone = functions_in(bare, mode), &leased = functions_in(place.name, mode);
  ASSERT_EQ(alone.why_not, "");
  ASSERT_EQ(leased.why_not, "");
  for (const std::string& complaint : compare(alone, leased, place.bit, allowed_differences()))
    ADD_FAILURE() << complaint;
  for (const std::string& complaint : leased.complaints) ADD_FAILURE() << complaint;
  if (const auto said = leased.said.find(""); HasFailure() && said != leased.said.end())
    std::cout << "between and after the calls:" << said->second << '\n';
}

class RuntimeFunctionsAloneTest : public ::testing::TestWithParam<std::string> {};

// The control: what differs from one bare process to the next says nothing about a lease.
TEST_P(RuntimeFunctionsAloneTest, TwoBareProcessesGetTheSame) {
  for (const auto& why : {why_no_runtime_library(), why_not(GetParam())})
    if (!why.empty()) GTEST_SKIP() << why;
  const FunctionResults &first = functions_in(bare, GetParam()),
                        second = run_functions(bare, GetParam());
  ASSERT_EQ(first.why_not, "");
  for (const std::string& complaint : compare(first, second, 0, {})) ADD_FAILURE() << complaint;
  for (const auto& [name, answer] : first.answers)
    EXPECT_THAT(answer, ::testing::Not(::testing::HasSubstr("the process"))) << name;
}

TEST(RuntimeFunctionPage, IsWrittenOnRequest) {
  const std::string file = variable("CTXB_RUNTIME_TABLE");
  if (file.empty()) GTEST_SKIP() << "CTXB_RUNTIME_TABLE names no file";
  if (const auto why = why_no_runtime_library(); !why.empty()) GTEST_SKIP() << why;
  for (const std::string& mode : link_modes)
    if (const auto why = why_not(mode); !why.empty()) GTEST_SKIP() << why;
  std::ofstream(file) << runtime_function_page();
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& mode : link_modes)
    for (const LeasePlace& place : lease_places()) all.push_back({place, mode});
  return all;
}

std::string name_of(const Case& one) {
  return (one.place.bit == in_partition ? "partition" : one.place.name) + ("_" + one.mode);
}

INSTANTIATE_TEST_SUITE_P(Modes, RuntimeFunctionList, ::testing::ValuesIn(link_modes),
                         [](const auto& one) { return one.param; });
INSTANTIATE_TEST_SUITE_P(Modes, RuntimeFunctionsAloneTest, ::testing::ValuesIn(link_modes),
                         [](const auto& one) { return one.param; });
INSTANTIATE_TEST_SUITE_P(Places, RuntimeFunctionsTest, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return name_of(one.param); });

}  // namespace
}  // namespace ctxbroker
