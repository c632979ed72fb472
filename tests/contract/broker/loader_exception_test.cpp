// SPDX-License-Identifier: Apache-2.0
// Static constructors and destructors that throw: the exception passes the system's loader, which
// then keeps its lock. Each case is a process of its own.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "support/child_process.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

BrokerOptions printing() {
  BrokerOptions options;
  options.records = [](const Record& record) {
    if (record.severity != Severity::error) return;
    std::printf("record of %s: %s\n", record.tenant_name.c_str(), record.text.c_str());
    std::fflush(stdout);
  };
  return options;
}

template <typename Load>
void load_and_go_on(const Load& load) {
  try {
    load();
    std::puts("it came back");
  } catch (const std::exception& error) {
    std::printf("the host caught \"%s\"\n", error.what());
  } catch (...) {
    std::puts("the host caught it");
  }
  std::fflush(stdout);
}

TEST(LoaderException, DISABLED_Adopt) {
  Broker broker = Broker::open(printing());
  Tenant tenant = broker.open_tenant("thrower");
  load_and_go_on([&] { tenant.adopt(test_library("throws_constructor")); });
}

TEST(LoaderException, DISABLED_Number) {
  Broker broker = Broker::open(printing());
  Tenant tenant = broker.open_tenant("thrower");
  load_and_go_on([&] { tenant.adopt(test_library("throws_number")); });
}

TEST(LoaderException, DISABLED_EndsThread) {
  Broker broker = Broker::open(printing());
  Tenant tenant = broker.open_tenant("thrower");
  std::thread([&] {
    load_and_go_on([&] { tenant.adopt(test_library("throws_ends_thread")); });
  }).join();
}

TEST(LoaderException, DISABLED_Load) {
  Broker broker = Broker::open(printing());
  load_and_go_on([&] { static_cast<void>(broker.load(test_library("throws_constructor"))); });
}

TEST(LoaderException, DISABLED_LoadOfWhatNeedsIt) {
  Broker broker = Broker::open(printing());
  load_and_go_on([&] { static_cast<void>(broker.load(test_library("throws_by_needed"))); });
}

void close_tenant_of(const char* library) {
  Broker broker = Broker::open(printing());
  TenantOptions options;
  options.unload_at_close = true;
  Tenant tenant = broker.open_tenant("thrower", options);
  tenant.adopt(test_library(library));
  load_and_go_on([&] { tenant.close(); });
}
TEST(LoaderException, DISABLED_Close) {
  close_tenant_of("throws_destructor");
}
TEST(LoaderException, DISABLED_CloseWithFunction) {
  close_tenant_of("throws_function");
}

// Code of a tenant opens the library.
TEST(LoaderException, DISABLED_OpenOfATenant) {
  Broker broker = Broker::open(printing());
  Tenant tenant = broker.open_tenant("thrower");
  const AdoptedLibrary library = tenant.adopt(test_library("attacks_callbacks"));
  const auto open = reinterpret_cast<void* (*)(const char*, int)>(library.symbol("ctxb_test_open"));
  ASSERT_NE(open, nullptr);
  const std::string file = test_library("throws_constructor").string();
  load_and_go_on([&] { tenant.run(0, [&] { return open(file.c_str(), RTLD_NOW); }); });
}

// The control: what happens when the exception passes.
TEST(LoaderException, DISABLED_WithoutTheBroker) {
  const std::string file = test_library("throws_constructor").string();
  // The C library declares it as a function that throws nothing.
  void* (*volatile open)(const char*, int) = dlopen;
  load_and_go_on([&] { open(file.c_str(), RTLD_NOW); });
  std::atomic<bool> done{false};
  std::thread other([&] {
    dlopen("/no/such.so", RTLD_NOW);
    done = true;
  });
  for (int i = 0; i < 100 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::puts(done ? "another thread's dlopen returned" : "another thread's dlopen hangs");
  std::fflush(stdout);
  std::_Exit(0);
}

ChildResult child(const char* name) {
  return run_child(std::string("LoaderException.DISABLED_") + name, signals_stay_signals);
}

struct Case {
  const char* name;
  const char* says;
};

class LoaderExceptionTest : public ::testing::TestWithParam<Case> {};

TEST_P(LoaderExceptionTest, ExceptionOutOfTheLoaderEndsTheProcessWithTheLibrarysName) {
  const ChildResult result = child(GetParam().name);
  EXPECT_EQ(result.signal, SIGABRT) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("ctxbroker: plug-in library /"), HasSubstr(GetParam().says),
                    HasSubstr("record of "), Not(HasSubstr("it came back")),
                    Not(HasSubstr("the host caught"))));
}

INSTANTIATE_TEST_SUITE_P(
    All, LoaderExceptionTest,
    ::testing::Values(
        Case{"Adopt",
             "throws_constructor.so: a static constructor threw an exception: the table "
             "cannot be read"},
        Case{"Number",
             "throws_number.so: a static constructor threw an exception: an object of "
             "type int"},
        Case{"EndsThread",
             "throws_ends_thread.so: a static constructor threw an exception: the end "
             "of its thread (pthread_exit)"},
        Case{"Load", "throws_constructor.so: a static constructor threw"},
        Case{"LoadOfWhatNeedsIt",
             "throws_by_needed.so: a static constructor, its own or that of a "
             "library that came with it (throws_needed.so), threw"},
        Case{"Close",
             "throws_destructor.so: a static destructor threw an exception: the table "
             "cannot be written"},
        Case{"CloseWithFunction",
             "throws_function.so: a static destructor threw an exception: "
             "the table cannot be written"},
        Case{"OpenOfATenant", "throws_constructor.so: a static constructor threw"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(LoaderExceptionControl, WithoutTheBrokerEveryLaterOpenHangs) {
  const ChildResult result = child("WithoutTheBroker");
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("the host caught \"the table"),
                                   HasSubstr("another thread's dlopen hangs")));
}

}  // namespace
}  // namespace ctxbroker
