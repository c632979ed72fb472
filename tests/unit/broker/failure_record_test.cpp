// SPDX-License-Identifier: Apache-2.0
#include "plugin/failure_record.hpp"

#include <gtest/gtest.h>

namespace ctxbroker::detail {
namespace {

TEST(FailureRecordTest, CallThatMetALossIsNamedAndNotTheCleanUp) {
  FailureRecord record;
  record.host_refused({CTXB_ERROR_NOT_FOUND, 0, "get_kernel: there is none"});
  record.host_refused({CTXB_ERROR_CONTEXT_LOST, 709, "allocate: the context is destroyed"});
  record.host_refused({CTXB_ERROR_CONTEXT_LOST, 0, "release: the lease's context is gone"});
  EXPECT_EQ(record.read().refused.text, "allocate: the context is destroyed");
  EXPECT_EQ(record.read().refused.driver_status, 709);

  record.clear();
  record.host_refused({CTXB_ERROR_CONTEXT_LOST, 0, "upload: the lease's context is gone"});
  EXPECT_EQ(record.read().refused.text, "upload: the lease's context is gone") << "another call";
}

TEST(FailureRecordTest, LastRefusalWithoutALossIsNamed) {
  FailureRecord record;
  record.host_refused({CTXB_ERROR_NOT_FOUND, 0, "get_kernel: there is none"});
  record.host_refused({CTXB_ERROR_NOT_FOUND, 0, "get_kernel: nor is there this one"});
  EXPECT_EQ(record.read().refused.text, "get_kernel: nor is there this one");
}

}  // namespace
}  // namespace ctxbroker::detail
