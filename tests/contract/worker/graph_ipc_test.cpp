// SPDX-License-Identifier: Apache-2.0
// Graphs in workers where a device cannot share memory by file descriptor. The tests of device
// memory, and those here, run in a child whose driver says so.
#include "groups_fixture.hpp"
#include "no_descriptors.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class NoDescriptorsGraphTest : public WorkerGroupsTest {
 protected:
  void passes(const std::string& tests, const std::string& refused = "") {
    const std::string driver = Broker::open().driver().path;
    const ChildResult child = run_child(tests, no_descriptors(driver, refused));
    EXPECT_EQ(child.exit_code, 0) << child.output;
    EXPECT_THAT(child.output, AllOf(HasSubstr("[  PASSED  ]"), Not(HasSubstr("PASSED  ] 0 "))));
  }
};

TEST_F(NoDescriptorsGraphTest, HostsMemoryIsLentByLegacyIpc) {
  passes("WorkerDeviceTest.*-*EndInAnyOrder");  // the memory has to outlive its loans
}

TEST_F(NoDescriptorsGraphTest, PicturesStayOnTheDeviceByLegacyIpc) {
  passes("WorkerLinksTest.*:*FrameLinksTest.*:HostPartTest.GraphMixesTheHostAndAWorker");
}

TEST_F(NoDescriptorsGraphTest, PicturesGoThroughHostMemoryWithoutIpc) {
  passes("NoLinksTest.*", "cuIpcGetMemHandle");
}

class NoLinksTest : public WorkerGroupsTest {};

TEST_F(NoLinksTest, DISABLED_RecordSaysWhyPicturesGoThroughHostMemory) {
  WorkerGraph graph(row({"exposure", "blur"}), grouped(WorkerGrouping::each_instance));
  graph.activate({width, height});
  EXPECT_THAT(records(), Contains(HasSubstr("through host memory: device 0 cannot share memory "
                                            "with other processes")));
  std::vector<float> picture(std::size_t{width} * height * 4, 0.5F);
  graph.process(picture.data(), picture.data(), picture_job());
}

}  // namespace
}  // namespace ctxbroker
