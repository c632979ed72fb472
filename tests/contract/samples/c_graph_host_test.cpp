// SPDX-License-Identifier: Apache-2.0
#include "c_graph_host.h"

#include <gtest/gtest.h>

#include "sample_runner.hpp"

namespace ctxbroker::test {
namespace {

TEST(CGraphHostTest, AHostInCRunsAGraphWithTwoInputs) {
  EXPECT_EQ(c_graph_host(plugin_file("blur").parent_path().c_str()), 0);
}

// The control: the host notices what does not go well.
TEST(CGraphHostTest, HostInCWithoutThePluginsFails) {
  EXPECT_NE(c_graph_host("/no/such/folder"), 0);
}

}  // namespace
}  // namespace ctxbroker::test
