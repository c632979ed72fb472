// SPDX-License-Identifier: Apache-2.0
// Libraries that must not leave the process: something still leads into their code, or a neighbour
// has closed them once too often. Each case in a child process.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory_resource>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "recording_broker.hpp"
#include "support/child_process.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

bool is_in_process(const std::filesystem::path& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library != nullptr) dlclose(library);  // this call's count only
  return library != nullptr;
}

// Calls the code, if there is anything that does.
void use_what_is_left() {
  raise(SIGUSR1);
  usleep(50000);  // threads and timers
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_t mutex;
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutex_lock(&mutex);  // goes into the thread's list in front of the other one
  pthread_mutex_unlock(&mutex);
  static_cast<void>(std::getenv("CTXB_TEST_NOT_SET"));
  static_cast<void>(random());
  std::cerr << "to a stream" << std::flush;
  std::ostringstream() << 12345;
  std::pmr::vector<int>(10);
}

// Leaves something behind, in a child process.
struct Leaver {
  const char* what;
  const char* library = "left_behind";
  const char* said = "left something behind in";  // null: nothing is left
  std::filesystem::path path() const { return test_library(library); }
  // NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name
  friend void PrintTo(const Leaver& leaver, std::ostream* out) { *out << leaver.what; }
  std::string function() const { return std::string("ctxb_test_leave_") + what; }
};
constexpr const char* unseen =
    "stays in the process, because nobody can see what it has given to on_exit, fopencookie, "
    "initstate";
const Leaver all_leavers[] = {{"nothing", "left_behind", nullptr},
                              {"signal"},
                              {"thread"},
                              {"cxx_thread"},
                              {"timer"},
                              {"robust_mutex"},
                              {"buffer"},
                              {"variable"},
                              {"stream"},
                              {"locale"},
                              {"memory_resource"},
                              {"exit_function", "left_unseen", unseen},
                              {"file", "left_unseen", unseen},
                              {"random_state", "left_unseen", unseen}};
const auto each_leaver = ::testing::ValuesIn(all_leavers);
const auto leavers_name = [](const auto& info) { return std::string(info.param.what); };

void leave(void* function) {
  reinterpret_cast<void (*)()>(function)();
}

// A broker with a tenant whose libraries are unloaded at its close.
class UnloadingBrokerTest : public RecordingBrokerTest {
 protected:
  Tenant open() {
    TenantOptions unloaded;
    unloaded.unload_at_close = true;
    return broker.open_tenant("leaves", unloaded);
  }
};

class LeftBehind : public UnloadingBrokerTest, public ::testing::WithParamInterface<Leaver> {
 protected:
  LeftBehind() { signal(SIGUSR1, SIG_IGN); }
};

TEST_P(LeftBehind, DISABLED_InATenantsLibrary) {
  const Leaver& leaver = GetParam();
  Tenant tenant = open();
  {
    const AdoptedLibrary library = tenant.adopt(leaver.path());
    tenant.run(0, [&] { leave(library.symbol(leaver.function().c_str())); });
  }
  usleep(20000);  // a thread begins
  tenant.close();
  EXPECT_EQ(is_in_process(leaver.path()), leaver.said != nullptr);
  use_what_is_left();
  if (leaver.said != nullptr) {
    EXPECT_THAT(said(), Contains(HasSubstr(leaver.said)));
  } else {
    EXPECT_THAT(said(), Not(Contains(HasSubstr("stays in the process"))));
  }
  std::printf("SURVIVED\n");
}

class LeftBehindAlone : public ::testing::TestWithParam<Leaver> {
 protected:
  LeftBehindAlone() { signal(SIGUSR1, SIG_IGN); }
};

TEST_P(LeftBehindAlone, DISABLED_WithoutTheBroker) {
  void* const library = dlopen(GetParam().path().c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr);
  leave(dlsym(library, GetParam().function().c_str()));
  usleep(20000);
  dlclose(library);
  use_what_is_left();
  std::printf("SURVIVED\n");
}

// Threads of the host with a function of the library, and a library that another one needs.
class LeftElsewhere : public UnloadingBrokerTest {};

TEST_F(LeftElsewhere, DISABLED_HostsThreadThatCallsTheLibrary) {
  const std::filesystem::path path = test_library("left_behind");
  std::promise<void> called, closed;
  Tenant tenant = open();
  std::thread worker;
  {
    const AdoptedLibrary library = tenant.adopt(path);
    auto* const function = reinterpret_cast<void (*)()>(library.symbol("ctxb_test_leave_nothing"));
    worker = std::thread([function, &called, &closed] {
      function();
      called.set_value();
      closed.get_future().wait();
    });
    called.get_future().wait();
  }
  tenant.close();
  EXPECT_EQ(tenant.strikes(), 0U);
  EXPECT_TRUE(is_in_process(path)) << "the thread may call it again";
  EXPECT_THAT(said(), Contains(HasSubstr("stays in the process")));
  closed.set_value();
  worker.join();
}

TEST_F(LeftElsewhere, DISABLED_ThreadsThatHaveEndedAreNotBlamed) {
  const std::filesystem::path path = test_library("left_behind");
  std::vector<std::thread> ended;
  for (int i = 0; i < 20; ++i) ended.emplace_back([] {});
  usleep(20000);  // they are not joined
  Tenant tenant = open();
  {
    const AdoptedLibrary library = tenant.adopt(path);
    reinterpret_cast<void (*)()>(library.symbol("ctxb_test_thread_that_ends"))();
  }
  usleep(20000);
  tenant.close();
  EXPECT_EQ(tenant.strikes(), 0U);
  EXPECT_FALSE(is_in_process(path));
  for (std::thread& one : ended) one.join();
}

TEST_F(LeftElsewhere, DISABLED_ThreadOfANeededLibraryKeepsBoth) {
  Tenant tenant = open();
  {
    const AdoptedLibrary library = tenant.adopt(test_library("left_behind_by_needed"));
    void* const needed = dlopen(test_library("left_behind_needed").c_str(), RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(needed, nullptr);
    reinterpret_cast<void (*)()>(dlsym(needed, "ctxb_test_leave_thread"))();
    dlclose(needed);
  }
  usleep(20000);
  tenant.close();
  EXPECT_TRUE(is_in_process(test_library("left_behind_needed")));
  EXPECT_EQ(tenant.strikes(), 1U);
  EXPECT_THAT(said(),
              Contains(HasSubstr("left_behind_needed.so: a thread that was started in it")));
  usleep(50000);
}

// A thread that is in the destructor of a key, which lies in the library, until it is let go.
class ThreadAtItsEnd {
 public:
  ThreadAtItsEnd(void* call_at_end, bool is_cxx) {
    ask = reinterpret_cast<void (*)(void (*)())>(call_at_end);
    std::future<void> arrived = is_there.get_future();
    if (is_cxx) {
      cxx_ = std::thread([] { ask(wait_at_end); });
    } else {
      const auto run = [](void*) -> void* { return ask(wait_at_end), nullptr; };
      pthread_create(&other_, nullptr, run, nullptr);
    }
    arrived.wait();
  }
  void finish() {
    is_let_go.set_value();
    cxx_.joinable() ? cxx_.join() : void(pthread_join(other_, nullptr));
    std::printf("SURVIVED\n");
  }

 private:
  static void wait_at_end() {
    is_there.set_value();
    is_let_go.get_future().wait();
  }
  static inline std::promise<void> is_there, is_let_go;
  static inline void (*ask)(void (*)()) = nullptr;
  std::thread cxx_;
  pthread_t other_{};
};

class InAKeysDestructor : public UnloadingBrokerTest, public ::testing::WithParamInterface<bool> {};

TEST_P(InAKeysDestructor, DISABLED_OfATenantsLibrary) {
  const std::filesystem::path path = test_library("left_behind");
  Tenant tenant = open();
  std::optional<ThreadAtItsEnd> thread;
  {
    const AdoptedLibrary library = tenant.adopt(path);
    thread.emplace(library.symbol("ctxb_test_call_at_end"), GetParam());
  }
  tenant.close();
  EXPECT_TRUE(is_in_process(path));
  EXPECT_THAT(said(), Contains(HasSubstr("may be in a destructor of it")));
  EXPECT_EQ(tenant.strikes(), 0U);
  thread->finish();
}

// A thread that is still at work may take its value back, and is in no destructor.
TEST_F(LeftElsewhere, DISABLED_ValuesOfAThreadAtWorkKeepNoLibrary) {
  const std::filesystem::path path = test_library("left_behind");
  std::promise<void> taken_back, closed;
  Tenant tenant = open();
  std::thread thread;
  {
    const AdoptedLibrary library = tenant.adopt(path);
    void* const leave_it = library.symbol("ctxb_test_leave_key_without_value");
    thread = std::thread([&taken_back, &closed, leave_it] {
      leave(leave_it);
      taken_back.set_value();
      closed.get_future().wait();
    });
    taken_back.get_future().wait();
  }
  tenant.close();
  EXPECT_FALSE(is_in_process(path));
  closed.set_value();
  thread.join();
}

class InAKeysDestructorAlone : public ::testing::TestWithParam<bool> {};

TEST_P(InAKeysDestructorAlone, DISABLED_WithoutTheBroker) {
  void* const library = dlopen(test_library("left_behind").c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr);
  ThreadAtItsEnd thread(dlsym(library, "ctxb_test_call_at_end"), GetParam());
  dlclose(library);
  thread.finish();
}

const auto ways_name = [](const auto& info) { return info.param ? "CxxThread" : "OtherThread"; };
INSTANTIATE_TEST_SUITE_P(Cases, InAKeysDestructor, ::testing::Bool(), ways_name);
INSTANTIATE_TEST_SUITE_P(Cases, InAKeysDestructorAlone, ::testing::Bool(), ways_name);

class InAKeysDestructorTest : public ::testing::TestWithParam<bool> {
 protected:
  static ChildResult run(const std::string& test) {
    return run_child("Cases/" + test + "/" + (GetParam() ? "CxxThread" : "OtherThread"));
  }
};

TEST_P(InAKeysDestructorTest, LibraryStaysWhileAThreadMayBeInIt) {
  const ChildResult child = run("InAKeysDestructor.DISABLED_OfATenantsLibrary");
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("SURVIVED"));
}

TEST_P(InAKeysDestructorTest, ControlWithoutTheBrokerEndsTheProcess) {
  const ChildResult child = run("InAKeysDestructorAlone.DISABLED_WithoutTheBroker");
  EXPECT_NE(child.exit_code, 0) << child.output;
}
INSTANTIATE_TEST_SUITE_P(Cases, InAKeysDestructorTest, ::testing::Bool(), ways_name);

class LeftElsewhereTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LeftElsewhereTest, IsFoundAndBlamedRightly) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "threads start in the sanitizer's code";
#endif
  const ChildResult child = run_child(std::string("LeftElsewhere.DISABLED_") + GetParam());
  EXPECT_EQ(child.exit_code, 0) << child.output;
}
INSTANTIATE_TEST_SUITE_P(Cases, LeftElsewhereTest,
                         ::testing::Values("HostsThreadThatCallsTheLibrary",
                                           "ThreadsThatHaveEndedAreNotBlamed",
                                           "ThreadOfANeededLibraryKeepsBoth",
                                           "ValuesOfAThreadAtWorkKeepNoLibrary"),
                         [](const auto& info) { return std::string(info.param); });

// A key does not keep the library: it is deleted with it.
constexpr const char* key_that_is_deleted = "key_that_is_deleted";
std::string key_function(const char* key) {
  return std::string("ctxb_test_leave_") + key;
}
// Leaves it on a thread that ends after the library, as a host's thread pool does.
template <typename Leave, typename Close>
void leave_on_a_thread(Leave&& leave, Close&& close) {
  std::promise<void> left, closed;
  std::thread thread([&] {
    leave();
    left.set_value();
    closed.get_future().wait();
  });
  left.get_future().wait();
  close();
  closed.set_value();
  thread.join();
  std::printf("SURVIVED\n");
}

class LeftKey : public UnloadingBrokerTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(LeftKey, DISABLED_InATenantsLibrary) {
  const std::filesystem::path path = test_library("left_behind");
  Tenant tenant = open();
  const auto leave_it = [&] {
    const AdoptedLibrary library = tenant.adopt(path);
    tenant.run(0, [&] { leave(library.symbol(key_function(GetParam()).c_str())); });
  };
  leave_on_a_thread(leave_it, [&] { tenant.close(); });
  EXPECT_FALSE(is_in_process(path));
  const bool is_left = GetParam() != std::string(key_that_is_deleted);
  EXPECT_EQ(tenant.strikes(), is_left ? 1u : 0u);
  EXPECT_EQ(::testing::Value(said(), Contains(HasSubstr("1 key(s)"))), is_left);
}

class LeftKeyAlone : public ::testing::TestWithParam<const char*> {};

TEST_P(LeftKeyAlone, DISABLED_WithoutTheBroker) {
  void* const library = dlopen(test_library("left_behind").c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr);
  leave_on_a_thread([&] { leave(dlsym(library, key_function(GetParam()).c_str())); },
                    [&] { dlclose(library); });
}

const auto all_keys = ::testing::Values("key", key_that_is_deleted);
const auto keys_name = [](const auto& info) { return std::string(info.param); };
INSTANTIATE_TEST_SUITE_P(Cases, LeftKey, all_keys, keys_name);
INSTANTIATE_TEST_SUITE_P(Cases, LeftKeyAlone, all_keys, keys_name);

class LeftKeyTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LeftKeyTest, ThreadEndsAfterTheLibraryOfItsKey) {
  const ChildResult child =
      run_child(std::string("Cases/LeftKey.DISABLED_InATenantsLibrary/") + GetParam());
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("SURVIVED"));
}

TEST_P(LeftKeyTest, ControlWithoutTheBrokerEndsTheProcess) {
  const ChildResult child =
      run_child(std::string("Cases/LeftKeyAlone.DISABLED_WithoutTheBroker/") + GetParam());
  EXPECT_EQ(child.exit_code == 0, GetParam() == std::string(key_that_is_deleted)) << child.output;
}
INSTANTIATE_TEST_SUITE_P(Cases, LeftKeyTest, all_keys, keys_name);

INSTANTIATE_TEST_SUITE_P(Cases, LeftBehind, each_leaver, leavers_name);
INSTANTIATE_TEST_SUITE_P(Cases, LeftBehindAlone, each_leaver, leavers_name);

class LeftBehindTest : public ::testing::TestWithParam<Leaver> {};

TEST_P(LeftBehindTest, LibraryThatSomethingLeadsIntoStaysInTheProcess) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (std::string(GetParam().what).find("thread") != std::string::npos) {
    GTEST_SKIP() << "threads start in the sanitizer's code";
  }
  if (GetParam().what == std::string("timer")) {
    GTEST_SKIP() << "the sanitizer does not know the C library's own threads";
  }
#endif
  const ChildResult child =
      run_child(std::string("Cases/LeftBehind.DISABLED_InATenantsLibrary/") + GetParam().what,
                signals_stay_signals);
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("SURVIVED"));
}

TEST_P(LeftBehindTest, ControlWithoutTheBrokerEndsTheProcess) {
  const ChildResult child =
      run_child(std::string("Cases/LeftBehindAlone.DISABLED_WithoutTheBroker/") + GetParam().what,
                signals_stay_signals);
  const bool survives = GetParam().said == nullptr;
  EXPECT_EQ(child.exit_code == 0, survives) << child.output;
}

INSTANTIATE_TEST_SUITE_P(Cases, LeftBehindTest, each_leaver, leavers_name);

// A neighbour gets the library's handle, and closes it more often than it has opened it.
void close_too_often(const std::filesystem::path& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  for (int i = 0; i < 3; ++i) dlclose(library);
}

class ClosedTooOften : public ::testing::TestWithParam<LeaseKind> {};

TEST_P(ClosedTooOften, DISABLED_AdoptedLibraryStays) {
  Broker broker = Broker::open();
  Tenant tenant = broker.open_tenant("victim", {LeaseChoice(GetParam())});
  Tenant neighbour = broker.open_tenant("closes", {LeaseChoice(GetParam())});
  const std::filesystem::path path = test_library("left_behind");
  const AdoptedLibrary library = tenant.adopt(path);
  neighbour.run(0, [&] { close_too_often(path); });
  EXPECT_TRUE(is_in_process(path));
  tenant.run(0, [&] { reinterpret_cast<void (*)()>(library.symbol("ctxb_test_leave_nothing"))(); });
}

TEST(ClosedTooOftenControl, DISABLED_LibraryThatNobodyKeepsIsGone) {
  const std::filesystem::path path = test_library("careless");
  ASSERT_NE(dlopen(path.c_str(), RTLD_NOW), nullptr);
  close_too_often(path);
  EXPECT_FALSE(is_in_process(path));
}

TEST_P(ClosedTooOften, DISABLED_LibraryThatIsToBeUnloadedStaysUntilItsTenantCloses) {
  std::vector<std::string> said;
  BrokerOptions recorded;
  recorded.records = [&](const Record& record) { said.push_back(record.text); };
  Broker broker = Broker::open(recorded);
  TenantOptions options{LeaseChoice(GetParam())};
  options.unload_at_close = true;
  Tenant tenant = broker.open_tenant("victim", options);
  Tenant neighbour = broker.open_tenant("closes", options);
  const std::filesystem::path path = test_library("left_behind");
  {
    const AdoptedLibrary library = tenant.adopt(path);
    neighbour.run(0, [&] { close_too_often(path); });
    ASSERT_TRUE(is_in_process(path));
    tenant.run(0,
               [&] { reinterpret_cast<void (*)()>(library.symbol("ctxb_test_leave_nothing"))(); });
  }
  tenant.close();
  EXPECT_FALSE(is_in_process(path));
  EXPECT_THAT(said, Contains(HasSubstr("more often than they opened it")));
}

INSTANTIATE_TEST_SUITE_P(Leases, ClosedTooOften,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& info) { return std::string(to_string(info.param)); });

class ClosedTooOftenTest : public ::testing::TestWithParam<LeaseKind> {};

TEST_P(ClosedTooOftenTest, AdoptedLibraryStays) {
  const ChildResult child = run_child(
      std::string("Leases/ClosedTooOften.DISABLED_AdoptedLibraryStays/") + to_string(GetParam()));
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

TEST_P(ClosedTooOftenTest, LibraryThatIsToBeUnloadedStaysUntilItsTenantCloses) {
  const ChildResult child = run_child(
      std::string(
          "Leases/ClosedTooOften.DISABLED_LibraryThatIsToBeUnloadedStaysUntilItsTenantCloses/") +
      to_string(GetParam()));
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

TEST(ClosedTooOftenControlTest, LibraryThatNobodyKeepsIsGoneAsAControl) {
  const ChildResult child =
      run_child("ClosedTooOftenControl.DISABLED_LibraryThatNobodyKeepsIsGone");
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

INSTANTIATE_TEST_SUITE_P(Leases, ClosedTooOftenTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace ctxbroker
