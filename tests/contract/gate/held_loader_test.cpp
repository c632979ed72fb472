// SPDX-License-Identifier: Apache-2.0
// A constructor or a destructor of one tenant's library does not return: nobody else waits for it
// without a limit.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "ctxbroker/error.hpp"
#include "recording_broker.hpp"
#include "support/temp_folder.hpp"
#include "support/test_library.hpp"

namespace {
std::atomic<const char*> held_at{nullptr};  // "constructor" or "destructor"
std::atomic<bool> is_held{false};
std::function<void()> do_in_constructor;  // on the test's own thread
}  // namespace
// The library calls it by its name.
extern "C" __attribute__((visibility("default"))) void hold_up_library(const char* where) {
  if (const auto call = do_in_constructor; call && std::strcmp(where, "constructor") == 0) call();
  const char* const at = held_at;
  if (at == nullptr || std::strcmp(at, where) != 0) return;
  is_held = true;
  while (held_at != nullptr) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr auto too_long = std::chrono::seconds(30);

// Does `work` on another thread, where a library is held up.
class Held {
 public:
  Held(const char* where, std::function<void()> work) {
    is_held = false;
    held_at = where;
    thread_ = std::thread(std::move(work));
    const auto deadline = std::chrono::steady_clock::now() + too_long;
    while (!is_held && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(is_held);
  }
  ~Held() { let_go(); }
  void let_go() {
    held_at = nullptr;
    if (thread_.joinable()) thread_.join();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  std::thread thread_;
};

class HeldLoaderTest : public RecordingBrokerTest {
 protected:
  HeldLoaderTest() : hasty(Broker::open(with_short_limit())) {}

  BrokerOptions with_short_limit() {
    BrokerOptions all = options();
    all.end_timeout = std::chrono::milliseconds(100);
    return all;
  }
  static TenantOptions unloading() {
    TenantOptions all;
    all.unload_at_close = true;
    return all;
  }
  // A library that no tenant has adopted.
  std::filesystem::path another() {
    auto file = folder / ("held_up" + std::to_string(++copies) + ".so");
    std::filesystem::copy_file(test_library("held_up"), file);
    return file;
  }
  static std::string refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::plugin_load) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  static bool is_loaded(const std::filesystem::path& file) {
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (library != nullptr) dlclose(library);
    return library != nullptr;
  }

  const TempFolder folder;
  int copies = 0;
  Broker hasty;
};

TEST_F(HeldLoaderTest, LoadsBesideAConstructorThatDoesNotReturnAreRefused) {
  Tenant slow = broker.open_tenant("slow"), quick = hasty.open_tenant("quick");
  const auto held_file = another(), file = another(), opened = another();
  Held held("constructor", [&] { slow.adopt(held_file); });
  std::atomic<bool> is_open{false};
  void* library = nullptr;
  std::thread opener([&] {
    library = dlopen(opened.c_str(), RTLD_NOW);
    is_open = true;
  });
  const auto names_it = AllOf(HasSubstr("a constructor of tenant slow's library"),
                              HasSubstr(held_file.string()), HasSubstr("100 ms"));
  EXPECT_THAT(refusal([&] { quick.adopt(file); }), names_it);
  EXPECT_THAT(refusal([&] { static_cast<void>(hasty.load(test_library("mixer"))); }), names_it);
  EXPECT_FALSE(is_open) << "the loader itself makes others wait, as a control";
  held.let_go();
  opener.join();
  EXPECT_NO_THROW(quick.adopt(file));
  EXPECT_NO_THROW(static_cast<void>(hasty.load(test_library("mixer"))));
  if (library != nullptr) dlclose(library);
}

TEST_F(HeldLoaderTest, LoadBesideADestructorThatDoesNotReturnIsRefused) {
  Tenant slow = broker.open_tenant("slow", unloading()), quick = hasty.open_tenant("quick");
  const auto held_file = another(), file = another();
  slow.adopt(held_file);
  Held held("destructor", [&] { slow.close(); });
  EXPECT_THAT(
      refusal([&] { quick.adopt(file); }),
      AllOf(HasSubstr("a destructor of tenant slow's library"), HasSubstr(held_file.string())));
  held.let_go();
  EXPECT_NO_THROW(quick.adopt(file));
}

TEST_F(HeldLoaderTest, LibraryStaysIfATenantClosesBesideAConstructorThatDoesNotReturn) {
  Tenant slow = broker.open_tenant("slow");
  Tenant leaves = hasty.open_tenant("leaves", unloading());
  Tenant stays = hasty.open_tenant("stays", unloading()), resident = hasty.open_tenant("resident");
  const auto held_file = another(), left = another(), kept = another(), resident_file = another();
  leaves.adopt(left);
  leaves.close();
  EXPECT_FALSE(is_loaded(left)) << "a control";
  const AdoptedLibrary library = stays.adopt(kept);
  resident.adopt(resident_file);
  Held held("constructor", [&] { slow.adopt(held_file); });
  stays.close();
  resident.close();
  EXPECT_THAT(said(), Contains(AllOf(HasSubstr("tenant: " + kept.string() +
                                               " stays in the process, because a constructor of "
                                               "tenant slow's library"),
                                     HasSubstr(held_file.string()))));
  EXPECT_THAT(said(), Not(Contains(HasSubstr(resident_file.string() + " stays"))))
      << "it stays in any case";
  EXPECT_THROW(static_cast<void>(library.symbol("any")), Error);
  held.let_go();
  EXPECT_TRUE(is_loaded(kept));
  EXPECT_TRUE(is_loaded(resident_file));
  Tenant next = hasty.open_tenant("next");
  EXPECT_NO_THROW(next.adopt(kept));
}

// ---- Libraries that something else than the broker loads ----

constexpr const char* not_by_the_broker = "the broker did not load that library";

TEST_F(HeldLoaderTest, LoadsBesideAConstructorOfTheHostsLibraryThatDoesNotReturnAreRefused) {
  Tenant quick = hasty.open_tenant("quick");
  const auto held_file = another(), file = another();
  void* library = nullptr;
  Held held("constructor", [&] { library = dlopen(held_file.c_str(), RTLD_NOW); });
  const auto says_it = AllOf(HasSubstr(not_by_the_broker), HasSubstr("100 ms"));
  EXPECT_THAT(refusal([&] { quick.adopt(file); }), says_it);
  EXPECT_THAT(refusal([&] { quick.adopt(file); }), says_it) << "the first question is still asked";
  EXPECT_THAT(refusal([&] { static_cast<void>(hasty.load(test_library("mixer"))); }), says_it);
  held.let_go();
  EXPECT_NO_THROW(quick.adopt(file));
  EXPECT_NO_THROW(static_cast<void>(hasty.load(test_library("mixer"))));
  if (library != nullptr) dlclose(library);
}

TEST_F(HeldLoaderTest, LoadBesideADestructorOfTheHostsLibraryThatDoesNotReturnIsRefused) {
  Tenant quick = hasty.open_tenant("quick");
  const auto held_file = another(), file = another();
  void* const library = dlopen(held_file.c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr);
  Held held("destructor", [&] { dlclose(library); });
  EXPECT_THAT(refusal([&] { quick.adopt(file); }), HasSubstr(not_by_the_broker));
  held.let_go();
  EXPECT_NO_THROW(quick.adopt(file));
}

TEST_F(HeldLoaderTest, LibraryStaysIfATenantClosesBesideAConstructorOfTheHostsLibrary) {
  Tenant leaves = hasty.open_tenant("leaves", unloading());
  Tenant stays = hasty.open_tenant("stays", unloading());
  const auto held_file = another(), left = another(), kept = another();
  leaves.adopt(left);
  leaves.close();
  EXPECT_FALSE(is_loaded(left)) << "a control";
  stays.adopt(kept);
  void* library = nullptr;
  Held held("constructor", [&] { library = dlopen(held_file.c_str(), RTLD_NOW); });
  stays.close();
  EXPECT_THAT(said(), Contains(AllOf(HasSubstr(kept.string() + " stays in the process, because"),
                                     HasSubstr(not_by_the_broker))));
  held.let_go();
  EXPECT_TRUE(is_loaded(kept));
  if (library != nullptr) dlclose(library);
}

TEST_F(HeldLoaderTest, ConstructorThatTheHostRunsMayAdopt) {
  Tenant quick = hasty.open_tenant("quick");
  const auto outer = another(), file = another();
  std::string error = "the constructor was not called";
  do_in_constructor = [&] {
    do_in_constructor = nullptr;
    error.clear();
    try {
      quick.adopt(file);
    } catch (const Error& one) {
      error = one.what();
    }
  };
  // The process has another thread, so that the broker does not skip the question.
  std::atomic<bool> is_over{false};
  std::thread idle([&] {
    while (!is_over) std::this_thread::yield();
  });
  void* const library = dlopen(outer.c_str(), RTLD_NOW);
  EXPECT_EQ(error, "") << "this thread has the loader, and waits for nobody";
  EXPECT_TRUE(is_loaded(file));
  is_over = true;
  idle.join();
  do_in_constructor = nullptr;
  if (library != nullptr) dlclose(library);
}

}  // namespace
}  // namespace ctxbroker
