// SPDX-License-Identifier: Apache-2.0
// Calls by threads of a plug-in that do not know that the instance, or its activation, has ended,
// and a loss beside the end of an activation.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "broker_fixture.hpp"
#include "late/late.h"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct LateCall {
  const char* function;
  std::function<ctxb_status(const ctxb_test_late&)> make;  // what it answered, or WRONG_STATE
};

ctxb_launch launch_of(const ctxb_test_late& late) {
  static const std::uint64_t unused = 0;
  static const void* const arguments[] = {&unused};
  static const std::uint32_t sizes[] = {8};
  ctxb_launch launch{};
  launch.size = sizeof launch;
  launch.argument_count = 1;
  launch.kernel = late.kernel;
  launch.stream = late.stream;
  for (int i = 0; i < 3; ++i) launch.grid[i] = launch.block[i] = 1;
  launch.arguments = arguments;
  launch.argument_sizes = sizes;
  return launch;
}

template <typename Extension>
const Extension& extension(const ctxb_test_late& late, const char* id) {
  return *static_cast<const Extension*>(late.host->get_extension(late.host, id));
}

// The tables as they were given while the instance was alive.
struct Tables {
  const ctxb_launch_extension* launch = nullptr;
  const ctxb_native_context_extension* native = nullptr;
  const ctxb_thread_check_extension* check = nullptr;
  explicit Tables(const ctxb_test_late& late)
      : launch(&extension<ctxb_launch_extension>(late, CTXB_EXT_LAUNCH)),
        native(&extension<ctxb_native_context_extension>(late, CTXB_EXT_NATIVE_CONTEXT)),
        check(&extension<ctxb_thread_check_extension>(late, CTXB_EXT_THREAD_CHECK)) {}
};

// All functions that a plug-in can call.
std::vector<LateCall> all_calls(const Tables& tables) {
  constexpr ctxb_status dead = CTXB_ERROR_WRONG_STATE;
  return {
      {"log",
       [](const ctxb_test_late& late) {
         late.host->log(late.host, CTXB_LOG_WARNING, "late: still loading");
         return dead;
       }},
      {"fail",
       [](const ctxb_test_late& late) { return late.host->fail(late.host, dead, 0, "late"); }},
      {"request_callback",
       [](const ctxb_test_late& late) {
         late.host->request_callback(late.host);
         return dead;
       }},
      {"request_restart",
       [](const ctxb_test_late& late) {
         late.host->request_restart(late.host);
         return dead;
       }},
      {"get_extension",
       [](const ctxb_test_late& late) {
         const void* const table = late.host->get_extension(late.host, CTXB_EXT_GPU);
         return table == late.gpu ? dead : CTXB_OK;  // null would end a careless plug-in
       }},
      {"get_kernel",
       [](const ctxb_test_late& late) {
         const ctxb_kernel* kernel = nullptr;
         return late.gpu->get_kernel(late.host, "late", "nothing", &kernel);
       }},
      {"get_global",
       [](const ctxb_test_late& late) {
         std::uint64_t address = 0, bytes = 0;
         return late.gpu->get_global(late.host, "late", "nothing", &address, &bytes);
       }},
      {"allocate",
       [](const ctxb_test_late& late) {
         std::uint64_t address = 0;
         return late.gpu->allocate(late.host, 64, &address);
       }},
      {"release",
       [](const ctxb_test_late& late) { return late.gpu->release(late.host, late.memory); }},
      {"launch",
       [](const ctxb_test_late& late) {
         const ctxb_launch launch = launch_of(late);
         return late.gpu->launch(late.host, &launch);
       }},
      {"launch",
       [tables](const ctxb_test_late& late) {
         const ctxb_launch launch = launch_of(late);
         return tables.launch->launch(late.host, &launch, nullptr);
       }},
      {"upload",
       [](const ctxb_test_late& late) {
         return late.gpu->upload(late.host, late.stream, late.memory, "text", 4);
       }},
      {"clear",
       [](const ctxb_test_late& late) {
         return late.gpu->clear(late.host, late.stream, late.memory, 4);
       }},
      {"copy",
       [](const ctxb_test_late& late) {
         return late.gpu->copy(late.host, late.stream, late.memory, late.memory + 32, 4);
       }},
      {"get_kernel_info",
       [tables](const ctxb_test_late& late) {
         ctxb_kernel_info info{};
         info.size = sizeof info;
         return tables.launch->get_kernel_info(late.host, late.kernel, &info);
       }},
      {"get_argument",
       [tables](const ctxb_test_late& late) {
         ctxb_kernel_argument argument{};
         argument.size = sizeof argument;
         return tables.launch->get_argument(late.host, late.kernel, 0, &argument);
       }},
      {"get_best_block",
       [tables](const ctxb_test_late& late) {
         std::uint32_t threads = 0, blocks = 0;
         return tables.launch->get_best_block(late.host, late.kernel, 0, 0, &threads, &blocks);
       }},
      {"get_active_blocks",
       [tables](const ctxb_test_late& late) {
         std::uint32_t blocks = 0;
         return tables.launch->get_active_blocks(late.host, late.kernel, 32, 0, &blocks);
       }},
      {"get_active_clusters",
       [tables](const ctxb_test_late& late) {
         const ctxb_launch launch = launch_of(late);
         std::uint32_t clusters = 0;
         return tables.launch->get_active_clusters(late.host, &launch, nullptr, &clusters);
       }},
      {"native-context",
       [tables](const ctxb_test_late& late) {
         void* context = nullptr;
         std::int32_t device = 0;
         return tables.native->get(late.host, &context, &device);
       }},
      {"is_main_thread",
       [tables](const ctxb_test_late& late) {
         return tables.check->is_main_thread(late.host) == 0 ? dead : CTXB_OK;
       }},
      {"is_process_thread",
       [tables](const ctxb_test_late& late) {
         return tables.check->is_process_thread(late.host) == 0 ? dead : CTXB_OK;
       }},
      {"write",
       [](const ctxb_test_late& late) {
         return late.output->write(late.output, "x", 1) == -1 ? dead : CTXB_OK;
       }},
      {"read",
       [](const ctxb_test_late& late) {
         char text[1];
         return late.input->read(late.input, text, 1) == -1 ? dead : CTXB_OK;
       }},
  };
}

// Holds up the thread that brings a record with some text to the host.
class Holdup {
 public:
  void hold(std::string text) {
    const std::lock_guard lock(mutex_);
    text_ = std::move(text);
  }
  void pass(const Record& record) {
    std::unique_lock lock(mutex_);
    if (text_.empty() || record.text.find(text_) == std::string::npos) return;
    held_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return text_.empty(); });
  }
  void wait_for_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return held_; });
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    text_.clear();
    held_ = false;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  bool held_ = false;
};

class LateCallTest : public BrokerTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  LateCallTest() { reopen(std::chrono::seconds(10)); }

  void reopen(std::chrono::milliseconds end_timeout) {
    broker.close();
    BrokerOptions options = BrokerTest::options();
    options.end_timeout = end_timeout;
    options.records = [this, keep = options.records](const Record& record) {
      keep(record);
      holdup.pass(record);
      if (on_record) on_record(record);
    };
    broker = Broker::open(std::move(options));
  }

  PluginInstance create_late() {
    const PluginLibrary library = broker.load(test_plugin("late"));
    return broker.create(library, "late", {Placement(0), LeaseChoice(GetParam())});
  }
  PluginInstance active_late() {
    PluginInstance instance = create_late();
    instance.activate(test_sizes);
    return instance;
  }
  // The handles of the newest instance of the library, which stays loaded.
  static ctxb_test_late& newest() {
    static void* const library = dlopen(test_plugin("late").c_str(), RTLD_NOW);
    return *static_cast<ctxb_test_late*>(dlsym(library, "ctxb_test_late_handles"));
  }
  // An instance that has done everything, and is destroyed now.
  ctxb_test_late destroyed() {
    PluginInstance instance = create_late();
    instance.load_state(instance.save_state());
    instance.activate(test_sizes);
    instance.deactivate();
    return newest();
  }
  std::vector<std::string> strikes_since(std::size_t first) const {
    const std::vector<std::string> all = said("strike");
    return {all.begin() + static_cast<std::ptrdiff_t>(first), all.end()};
  }
  // Makes, activates and ends some instances of another library, whose memory is likely to lie
  // where the late one's did.
  void expect_that_others_are_left_alone() {
    for (int i = 0; i < 10; ++i) {
      PluginInstance other = active("affine", GetParam());
      EXPECT_EQ(run({&other})[3], 3.0F);
      EXPECT_EQ(other.metrics().strikes, 0u);
      EXPECT_FALSE(other.restart_requested());
    }
  }

  Holdup holdup;
  std::function<void(const Record&)> on_record;
};

TEST_P(LateCallTest, CallsOfADestroyedInstanceAreRefusedAndStruckByName) {
  std::optional<PluginInstance> instance(active_late());
  const Tables tables(newest());
  newest().host->request_restart(newest().host);
  newest().host->log(newest().host, CTXB_LOG_INFO, "late: alive");
  EXPECT_TRUE(instance->restart_requested()) << "alive, as a control";
  EXPECT_THAT(said("plugin"), Contains(HasSubstr("late: alive")));
  instance.reset();
  const ctxb_test_late late = destroyed();
  PluginInstance other = active("affine", GetParam());
  for (const LateCall& call : all_calls(tables)) {
    SCOPED_TRACE(call.function);
    const std::size_t before = said("strike").size();
    EXPECT_EQ(call.make(late), CTXB_ERROR_WRONG_STATE);
    std::thread([&] { EXPECT_EQ(call.make(late), CTXB_ERROR_WRONG_STATE); }).join();
    EXPECT_THAT(strikes_since(before), Each(AllOf(HasSubstr(std::string(call.function) + ": "),
                                                  HasSubstr("com.example.test.late"))));
    EXPECT_FALSE(strikes_since(before).empty());
  }
  EXPECT_EQ(other.metrics().strikes, 0u);
  EXPECT_FALSE(other.restart_requested());
  EXPECT_THAT(said("plugin"), Not(Contains(HasSubstr("late: still loading"))));
  EXPECT_STREQ(late.host->name, "contract test") << "its text stays, too";
  expect_that_others_are_left_alone();
}

TEST_P(LateCallTest, CallsAfterTheBrokerHasClosedAreRefusedAndToldToNobody) {
  ctxb_test_late late{};
  {
    PluginInstance instance = active_late();
    instance.deactivate();
    instance.load_state(instance.save_state());
    late = newest();
  }
  const Tables tables(late);
  broker.close();
  const std::size_t before = said("strike").size();
  for (const LateCall& call : all_calls(tables)) {
    EXPECT_EQ(call.make(late), CTXB_ERROR_WRONG_STATE) << call.function;
  }
  EXPECT_EQ(said("strike").size(), before);
  EXPECT_STREQ(late.host->version, "1");
}

// Under ThreadSanitizer and AddressSanitizer, this test says more.
TEST_P(LateCallTest, ThreadsThatCallThroughWholeLivesHurtNobody) {
  constexpr int threads = 3, lives = 15;
  std::optional<PluginInstance> instance(create_late());
  instance->load_state(instance->save_state());
  instance->activate(test_sizes);
  const std::vector<LateCall> calls = all_calls(Tables(newest()));
  std::mutex mutex;
  ctxb_test_late shown = newest();  // under the mutex
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> refused{0}, made{0};
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&] {
      ctxb_test_late late{};
      for (; !stop; std::this_thread::yield()) {
        if (late.host == nullptr || made % 7 == 0) {  // else they are of an earlier life
          const std::lock_guard lock(mutex);
          late = shown;
        }
        for (const LateCall& call : calls) {
          ++made;
          if (call.make(late) == CTXB_ERROR_WRONG_STATE) ++refused;
        }
      }
    });
  }
  for (int life = 0; life < lives; ++life) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    instance.reset();
    expect_that_others_are_left_alone();
    instance.emplace(active_late());
    const std::lock_guard lock(mutex);
    shown.host = newest().host;
    shown.kernel = newest().kernel;
    shown.stream = newest().stream;
    shown.memory = newest().memory;
  }
  instance.reset();
  stop = true;
  for (std::thread& thread : running) thread.join();
  EXPECT_GT(made, calls.size() * threads);
  EXPECT_GT(refused, 0u);
}

TEST_P(LateCallTest, AnActivationStaysWhileACallIsInsideIt) {
  reopen(std::chrono::milliseconds(50));
  std::optional<PluginInstance> instance(active_late());
  const ctxb_test_late late = newest();
  const Tables tables(late);
  holdup.hold("info is null");
  ctxb_status answer = CTXB_OK;
  std::thread caller(
      [&] { answer = tables.launch->get_kernel_info(late.host, late.kernel, nullptr); });
  holdup.wait_for_one();
  instance->deactivate();
  EXPECT_THAT(said("plugin"), Contains(HasSubstr("is inside a call after deactivate")));
  instance->activate(test_sizes);
  instance->deactivate();
  holdup.let_go();
  caller.join();
  EXPECT_EQ(answer, CTXB_ERROR_INVALID_ARGUMENT);
  instance.reset();
  EXPECT_NO_THROW(broker.close()) << "nothing of it is left";
}

TEST_P(LateCallTest, AnInstanceStaysWhileACallIsInsideItAndNobodyWaitsForThat) {
  reopen(std::chrono::milliseconds(50));
  std::optional<PluginInstance> instance(active_late());
  const ctxb_test_late late = newest();
  holdup.hold("late: slow to log");
  std::thread caller([&] { late.host->log(late.host, CTXB_LOG_INFO, "late: slow to log"); });
  holdup.wait_for_one();
  instance.reset();
  EXPECT_THAT(said("plugin"), Contains(HasSubstr("is inside a call after destroy")));
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { broker.close(); }),
              HasSubstr("1 plug-in library"));
  holdup.let_go();
  caller.join();
  broker.poll();
  EXPECT_NO_THROW(broker.close());
}

TEST_P(LateCallTest, AStreamThatIsUsedAfterSaveOrLoadIsRefusedAndStruck) {
  PluginInstance instance = create_late();
  const std::vector<std::byte> state = instance.save_state();
  instance.load_state(state);
  EXPECT_EQ(state.size(), 5u) << "lent, as a control";
  const ctxb_test_late late = newest();
  char text[1];
  EXPECT_EQ(late.output->write(late.output, "x", 1), -1);
  EXPECT_EQ(late.input->read(late.input, text, 1), -1);
  EXPECT_EQ(instance.metrics().strikes, 2u);
  EXPECT_THAT(said("strike"), Contains(HasSubstr("the stream is lent until save returns")));
  EXPECT_EQ(instance.save_state(), state);
}

class LargeStateTest : public LateCallTest {};

TEST_P(LargeStateTest, StateBeyondItsLimitIsRefusedAndTheInstanceGoesOn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer takes four bytes for each byte of the state";
#endif
  constexpr std::uint64_t most = std::uint64_t{1} << 30;
  PluginInstance instance = create_late();
  newest().state_bytes = most;
  EXPECT_EQ(instance.save_state().size(), most) << "the control";
  newest().state_bytes = most + 1;
  EXPECT_THAT(
      error_text(ErrorKind::plugin_failed, [&] { static_cast<void>(instance.save_state()); }),
      AllOf(HasSubstr("save failed"), HasSubstr("more than 1073741824 bytes"),
            HasSubstr("the limit plugin_state: save the names of large files")));
  newest().state_bytes = 0;
  EXPECT_EQ(instance.save_state().size(), 5u);
  EXPECT_EQ(instance.metrics().strikes, 0u) << "a large state is no breach";
}

// A plug-in has not forgotten the memory that a loss has taken.
class LossInDeactivateTest : public LateCallTest {};

TEST_P(LossInDeactivateTest, ALossBesideDeactivateIsNoStrike) {
  PluginInstance instance = active_late();
  const TenantId tenant = instance.lease().tenant;
  ASSERT_GT(instance.metrics().memory_bytes, 0u);
  on_record = [&](const Record& record) {
    if (record.text.find("late: in deactivate") == std::string::npos) return;
    EXPECT_TRUE(broker.force_loss(tenant, 0, "a test")) << "before the plug-in releases";
  };
  instance.deactivate();
  on_record = nullptr;
  EXPECT_EQ(instance.metrics().strikes, 0u);
  EXPECT_THAT(said("strike"), IsEmpty());
  EXPECT_EQ(instance.metrics().memory_bytes, 0u);
  instance.activate(test_sizes);
  EXPECT_EQ(instance.lease().state, LeaseState::ready);
}

TEST_P(LossInDeactivateTest, WithoutALossWhatIsForgottenIsAStrike) {
  PluginInstance instance = active("leaks", GetParam());
  instance.deactivate();
  EXPECT_EQ(instance.metrics().strikes, 1u);
  EXPECT_THAT(said("strike"), Contains(HasSubstr("forgot")));
}

constexpr LeaseKind every_kind[] = {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green};

std::string name_of(const ::testing::TestParamInfo<LeaseKind>& info) {
  return to_string(info.param);
}

INSTANTIATE_TEST_SUITE_P(All, LateCallTest, ::testing::ValuesIn(every_kind), name_of);
INSTANTIATE_TEST_SUITE_P(Shared, LargeStateTest, ::testing::Values(LeaseKind::shared), name_of);
INSTANTIATE_TEST_SUITE_P(All, LossInDeactivateTest, ::testing::ValuesIn(every_kind), name_of);

}  // namespace
}  // namespace ctxbroker
