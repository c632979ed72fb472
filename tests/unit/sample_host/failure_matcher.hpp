// SPDX-License-Identifier: Apache-2.0
// EXPECT that a call throws a Failure of one kind whose text says certain things.
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "exit_code.hpp"

namespace ctxbroker::sample_host::test {

template <typename Call>
void expect_failure(Call call, ExitCode code, const std::string& part) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected: " << part;
  } catch (const Failure& failure) {
    EXPECT_EQ(static_cast<int>(failure.code()), static_cast<int>(code)) << failure.what();
    EXPECT_THAT(failure.what(), ::testing::HasSubstr(part));
  }
}

}  // namespace ctxbroker::sample_host::test
