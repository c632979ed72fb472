// SPDX-License-Identifier: Apache-2.0
// host_records.h
#include "ctxbroker/host_records.h"

#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class RecordQueueTest : public ::testing::Test {
 protected:
  void create(std::uint32_t capacity) {
    ctxb_record_queue* made = nullptr;
    ASSERT_EQ(ctxb_record_queue_create(capacity, &made), CTXB_OK) << ctxb_last_error();
    queue.reset(made);
  }
  void add(const char* text) {
    ctxb_record_queue_add(queue.get(), CTXB_LOG_WARNING, 4, "blur", "strike", text);
  }
  ctxb_status take(std::uint32_t timeout_ms = 0) {
    record = {};
    record.size = sizeof record;
    return ctxb_record_queue_take(queue.get(), timeout_ms, &record);
  }

  struct Destroy {
    void operator()(ctxb_record_queue* one) const {
      EXPECT_EQ(ctxb_record_queue_destroy(one), CTXB_OK);
    }
  };
  std::unique_ptr<ctxb_record_queue, Destroy> queue;
  ctxb_queued_record record{};
};

TEST_F(RecordQueueTest, RecordsAreTakenOutInTheirOrderWithAllThatTheyHave) {
  create(0);
  EXPECT_EQ(take(), CTXB_AGAIN);
  add("first");
  std::thread([&] { add("second"); }).join();
  ASSERT_EQ(take(), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(record.severity, std::uint32_t{CTXB_LOG_WARNING});
  EXPECT_EQ(record.tenant, 4u);
  EXPECT_STREQ(record.tenant_name, "blur");
  EXPECT_STREQ(record.topic, "strike");
  EXPECT_STREQ(record.text, "first");
  EXPECT_EQ(record.thread, static_cast<std::uint64_t>(::syscall(SYS_gettid)));
  EXPECT_EQ(record.lost_before, 0u);
  const std::uint64_t time = record.time_ns;
  EXPECT_GT(time, 1'600'000'000'000'000'000u);
  ASSERT_EQ(take(), CTXB_OK);
  EXPECT_STREQ(record.text, "second");
  EXPECT_NE(record.thread, static_cast<std::uint64_t>(::syscall(SYS_gettid)));
  EXPECT_GE(record.time_ns, time);
  EXPECT_EQ(take(), CTXB_AGAIN);
}

TEST_F(RecordQueueTest, RecordsBeyondTheCapacityAreCounted) {
  create(2);
  for (const char* text : {"a", "b", "c", "d"}) add(text);
  for (const char* text : {"a", "b"}) {
    ASSERT_EQ(take(), CTXB_OK);
    EXPECT_STREQ(record.text, text);
    EXPECT_EQ(record.lost_before, 0u);
  }
  add("e");
  ASSERT_EQ(take(), CTXB_OK);
  EXPECT_STREQ(record.text, "e");
  EXPECT_EQ(record.lost_before, 2u);
}

TEST_F(RecordQueueTest, WaitingEndsWithARecordOrWithAWake) {
  create(0);
  std::thread adds([&] { add("late"); });
  EXPECT_EQ(take(UINT32_MAX), CTXB_OK);
  adds.join();
  std::thread wakes([&] { ctxb_record_queue_wake(queue.get()); });
  EXPECT_EQ(take(UINT32_MAX), CTXB_AGAIN) << "a wake before the call counts too";
  wakes.join();
  // Waits, and leaves the record to another thread.
  add("left");
  EXPECT_EQ(ctxb_record_queue_take(queue.get(), UINT32_MAX, nullptr), CTXB_OK);
  EXPECT_EQ(take(), CTXB_OK);
  EXPECT_EQ(take(1), CTXB_AGAIN);
}

TEST_F(RecordQueueTest, BrokerAddsItsRecords) {
  create(0);
  ctxb_broker_options options{};
  options.size = sizeof options;
  options.record = ctxb_record_queue_add;
  options.record_data = queue.get();
  ctxb_broker* broker = nullptr;
  ctxb_tenant* tenant = nullptr;
  ASSERT_EQ(ctxb_broker_open(&options, &broker), CTXB_OK) << ctxb_last_error();
  ASSERT_EQ(ctxb_tenant_open(broker, "filter", nullptr, &tenant), CTXB_OK) << ctxb_last_error();
  std::vector<std::string> said;
  std::atomic<bool> ended = false;
  std::thread reader([&] {
    // What was added before the wake is still there after it.
    bool was_ended = false;
    do {
      was_ended = ended;
      while (take(was_ended ? 0 : UINT32_MAX) == CTXB_OK) said.emplace_back(record.text);
    } while (!was_ended);
  });
  ctxb_lease_info lease{};
  lease.size = sizeof lease;
  EXPECT_EQ(ctxb_tenant_lease(tenant, 0, &lease), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_tenant_force_loss(tenant, 0, "to be read"), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_tenant_close(tenant), CTXB_OK) << ctxb_last_error();
  EXPECT_EQ(ctxb_broker_close(broker), CTXB_OK) << ctxb_last_error();
  ended = true;
  ctxb_record_queue_wake(queue.get());
  reader.join();
  EXPECT_THAT(said, Contains(HasSubstr("to be read")));
}

TEST_F(RecordQueueTest, WrongArgumentsAreRefused) {
  EXPECT_EQ(ctxb_record_queue_create(0, nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_record_queue_take(nullptr, 0, &record), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ctxb_record_queue_destroy(nullptr), CTXB_ERROR_INVALID_ARGUMENT);
  ctxb_record_queue_wake(nullptr);
  ctxb_record_queue_add(nullptr, 0, 0, "", "", "");
  create(0);
  ctxb_record_queue_add(queue.get(), 0, 0, nullptr, nullptr, nullptr);
  record.size = 3;
  EXPECT_EQ(ctxb_record_queue_take(queue.get(), 0, &record), CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ctxb_last_error(), HasSubstr("sizeof(ctxb_queued_record)"));
  ASSERT_EQ(take(), CTXB_OK) << "it is still there";
  EXPECT_STREQ(record.text, "");
}

}  // namespace
}  // namespace ctxbroker
