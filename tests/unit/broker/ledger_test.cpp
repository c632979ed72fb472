#include "memory/ledger.hpp"

#include <gmock/gmock.h>

#include <thread>
#include <vector>

#include "fake_driver.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class LedgerTest : public ::testing::Test {
 protected:
  FakeDriver& books = fresh_fake_driver();
  Driver driver = fake_driver();
};

TEST_F(LedgerTest, CountsWhatIsHeldAndItsPeak) {
  Ledger ledger(driver.table, 0);
  CUdeviceptr a = 0, b = 0;
  EXPECT_EQ(ledger.allocate(100, &a).status, CUDA_SUCCESS);
  EXPECT_EQ(ledger.allocate(50, &b).status, CUDA_SUCCESS);
  EXPECT_EQ(ledger.bytes(), 150u);
  EXPECT_EQ(ledger.release(a), CUDA_SUCCESS);
  EXPECT_EQ(ledger.bytes(), 50u);
  EXPECT_EQ(ledger.peak_bytes(), 150u);
  EXPECT_THAT(books.memory, SizeIs(1));
}

TEST_F(LedgerTest, RefusesWhatIsNotInIt) {
  Ledger ledger(driver.table, 0), other(driver.table, 0);
  CUdeviceptr mine = 0, theirs = 0;
  ledger.allocate(100, &mine);
  other.allocate(100, &theirs);
  EXPECT_EQ(ledger.release(theirs), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ledger.release(mine + 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ledger.release(mine), CUDA_SUCCESS);
  EXPECT_EQ(ledger.release(mine), CUDA_ERROR_INVALID_VALUE) << "twice";
  EXPECT_THAT(books.memory, SizeIs(1));
}

TEST_F(LedgerTest, KeepsTheBudgetWithoutAskingTheDriver) {
  Ledger ledger(driver.table, 100);
  CUdeviceptr a = 0, b = 0;
  EXPECT_EQ(ledger.allocate(60, &a).status, CUDA_SUCCESS);
  const Ledger::Outcome refused = ledger.allocate(41, &b);
  EXPECT_TRUE(refused.over_budget);
  EXPECT_EQ(refused.status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(b, 0u);
  EXPECT_EQ(ledger.allocate(40, &b).status, CUDA_SUCCESS);
  EXPECT_TRUE(ledger.allocate(~std::uint64_t{0}, &b).over_budget) << "no overflow";
  EXPECT_EQ(ledger.bytes(), 100u);
}

TEST_F(LedgerTest, AFailedAllocationTakesNothingFromTheBudget) {
  Ledger ledger(driver.table, 100);
  CUdeviceptr a = 0;
  books.alloc_status = CUDA_ERROR_OUT_OF_MEMORY;
  const Ledger::Outcome outcome = ledger.allocate(80, &a);
  EXPECT_EQ(outcome.status, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(outcome.over_budget);
  EXPECT_EQ(ledger.bytes(), 0u);
  EXPECT_EQ(ledger.peak_bytes(), 0u);
}

TEST_F(LedgerTest, GivesEverythingBack) {
  Ledger ledger(driver.table, 0);
  CUdeviceptr address = 0;
  for (int i = 0; i < 3; ++i) ledger.allocate(10, &address);
  const Ledger::Forgotten forgotten = ledger.give_back_all();
  EXPECT_EQ(forgotten.count, 3u);
  EXPECT_EQ(forgotten.bytes, 30u);
  EXPECT_EQ(forgotten.status, CUDA_SUCCESS);
  EXPECT_THAT(books.memory, IsEmpty());
  EXPECT_EQ(ledger.bytes(), 0u);
  EXPECT_EQ(ledger.give_back_all().count, 0u);
}

TEST_F(LedgerTest, WhatTheDriverRefusesToFreeIsTriedAgainAtTheEnd) {
  Ledger ledger(driver.table, 0);
  CUdeviceptr address = 0;
  ledger.allocate(10, &address);
  books.free_status = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_EQ(ledger.release(address), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ledger.bytes(), 0u);
  EXPECT_EQ(ledger.release(address), CUDA_ERROR_INVALID_VALUE) << "given back once";
  books.free_status = CUDA_SUCCESS;
  EXPECT_EQ(ledger.give_back_all().count, 0u) << "nobody forgot it";
  EXPECT_THAT(books.memory, IsEmpty());
}

TEST_F(LedgerTest, LostMemoryIsForgottenWithoutADriverCall) {
  Ledger ledger(driver.table, 0);
  CUdeviceptr address = 0;
  ledger.allocate(10, &address);
  ledger.forget_all();
  EXPECT_EQ(ledger.bytes(), 0u);
  EXPECT_THAT(books.memory, SizeIs(1));
}

}  // namespace
}  // namespace ctxbroker::detail
