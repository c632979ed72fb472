// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/error.hpp"

#include <gmock/gmock.h>

#include <cerrno>
#include <set>
#include <string>

#include "driver/driver_error.hpp"
#include "fake_driver.hpp"
#include "observe/system_failure.hpp"
#include "plugin/status_text.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StrEq;

TEST(ErrorTest, KindsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  const int last = static_cast<int>(ErrorKind::over_limit);
  for (int kind = 0; kind <= last; ++kind) names.insert(to_string(static_cast<ErrorKind>(kind)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(last) + 1);
  EXPECT_STREQ(to_string(ErrorKind::out_of_memory), "out-of-memory");
  EXPECT_STREQ(to_string(ErrorKind::parameter_value), "parameter-value");
  EXPECT_STREQ(to_string(ErrorKind::over_limit), "over-limit");
  EXPECT_STREQ(to_string(static_cast<ErrorKind>(999)), "unknown");
}

// The remedy differs, so the kind does.
TEST(ErrorTest, WhatTheSystemRefusesHasAKindOfItsOwnAndARemedy) {
  for (const int error : {EMFILE, ENFILE, EAGAIN}) {
    const Error failure = detail::system_failure(error, "no socket");
    EXPECT_EQ(failure.kind(), ErrorKind::system_limit);
    EXPECT_THAT(failure.what(), AllOf(HasSubstr("no socket; close"), HasSubstr("ulimit")));
    EXPECT_EQ(detail::status_for(failure.kind()), CTXB_ERROR_SYSTEM_LIMIT);
  }
  for (const int error : {ENOMEM, ENOSPC}) {
    const Error failure = detail::system_failure(error, "no pages");
    EXPECT_EQ(failure.kind(), ErrorKind::out_of_host_memory);
    EXPECT_THAT(failure.what(), HasSubstr("no pages; free memory"));
    EXPECT_EQ(detail::status_for(failure.kind()), CTXB_ERROR_OUT_OF_HOST_MEMORY);
  }
  EXPECT_EQ(detail::status_for(ErrorKind::out_of_memory), CTXB_ERROR_OUT_OF_DEVICE_MEMORY);
}

TEST(ErrorTest, TextWithoutOriginIsTheMessage) {
  const Error error(ErrorKind::invalid_argument, "width is 0");
  EXPECT_THAT(error.what(), StrEq("width is 0"));
  EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
}

TEST(ErrorTest, TextEndsWithTheOriginInWords) {
  const Error error(ErrorKind::driver_call, "cannot allocate 12 bytes",
                    {"cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY", 1, "blur"});
  EXPECT_THAT(error.what(), StrEq("cannot allocate 12 bytes [cuMemAlloc_v2: "
                                  "CUDA_ERROR_OUT_OF_MEMORY (2); device 1; for blur]"));
  EXPECT_THAT(error.message(), StrEq("cannot allocate 12 bytes"));
}

TEST(ErrorTest, ADriversErrorCarriesCallStatusDeviceAndTenant) {
  detail::fresh_fake_driver();
  const detail::Driver driver = detail::fake_driver();
  const Error error = detail::driver_error(driver.table, CUDA_ERROR_OUT_OF_MEMORY, "cuMemAlloc_v2",
                                           "cannot allocate", {3, "gain"});
  EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
  EXPECT_EQ(error.origin().status, 2);
  EXPECT_EQ(error.origin().device, 3);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("cannot allocate: out of memory"), HasSubstr("gain"),
                                  HasSubstr("CUDA_ERROR_OUT_OF_MEMORY")));
}

TEST(ErrorTest, AStatusWithoutANameIsANumber) {
  detail::fresh_fake_driver();
  const detail::Driver driver = detail::fake_driver();
  EXPECT_EQ(detail::status_name(driver.table, static_cast<CUresult>(12345)), "CUDA error 12345");
}

TEST(ErrorTest, FaultsLoseTheContextAndOrdinaryFailuresDoNot) {
  for (const auto status : {CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_ASSERT,
                            CUDA_ERROR_CONTEXT_IS_DESTROYED}) {
    EXPECT_TRUE(detail::loses_context(status)) << status;
    EXPECT_EQ(detail::kind_of(status), ErrorKind::context_lost) << status;
  }
  for (const auto status : {CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE}) {
    EXPECT_FALSE(detail::loses_context(status)) << status;
  }
}

}  // namespace
}  // namespace ctxbroker
