// SPDX-License-Identifier: Apache-2.0
// Exported memory counts as long as what was given out for it is there.
#include "gate/exports.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace ctxbroker::detail {
namespace {

class ExportsTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Charge> charge(std::uint64_t bytes) {
    return Charge::take(limits, Limit::device_memory, bytes);
  }
  std::uint64_t counted() {
    exports.forget_closed();
    return limits.of(Limit::device_memory).held();
  }
  // Closes the descriptor when it is on its way to nobody.
  static void send(int socket, int file) {
    char byte = 0;
    iovec data{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof file)] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
    ASSERT_EQ(sendmsg(socket, &message, 0), 1);
    close(file);
  }

  Limits limits, neighbours;
  Exports exports;
  const TenantId tenant{7}, neighbour{8};
};

TEST_F(ExportsTest, MemoryCountsUntilTheLastCopyOfItsDescriptorIsClosed) {
  const int file = eventfd(0, EFD_CLOEXEC);
  const int other = eventfd(0, EFD_CLOEXEC);
  exports.add(tenant, charge(10), file);
  exports.add(tenant, charge(1), other);
  EXPECT_EQ(counted(), 11U);
  const int copy = dup(file);
  close(file);
  EXPECT_EQ(counted(), 11U) << "a copy is open";
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  send(sockets[0], copy);
  EXPECT_EQ(counted(), 11U) << "a copy is on its way";
  close(sockets[0]);
  close(sockets[1]);
  EXPECT_EQ(counted(), 1U);
  close(other);
  EXPECT_EQ(counted(), 0U);
}

TEST_F(ExportsTest, MemoryCountsUntilTheTenantEndsIfTheSystemDoesNotTell) {
  const int file = memfd_create("exported", MFD_CLOEXEC);
  ASSERT_GE(file, 0);
  const auto memory = charge(10);
  for (int i = 0; i < 3; ++i) exports.add(tenant, memory, file);
  close(file);
  exports.add(tenant, charge(5), Exports::Fabric{1});
  exports.add(neighbour, Charge::take(neighbours, Limit::device_memory, 3), Exports::Fabric{2});
  EXPECT_EQ(counted(), 15U);
  exports.forget(tenant);
  EXPECT_EQ(memory.use_count(), 1);
  EXPECT_EQ(counted(), 10U) << "it is held";
  EXPECT_EQ(neighbours.of(Limit::device_memory).held(), 3U);
}

TEST_F(ExportsTest, ImportIsTheMemoryWhoseDescriptorItIs) {
  const int first = eventfd(0, EFD_CLOEXEC), second = eventfd(0, EFD_CLOEXEC);
  exports.add(tenant, charge(10), first);
  exports.add(neighbour, Charge::take(neighbours, Limit::device_memory, 3), second);
  const auto own = exports.find(tenant, first);
  ASSERT_EQ(own.own.size(), 1U);
  EXPECT_EQ(own.own.front()->bytes(), 10U);
  EXPECT_TRUE(own.of_neighbours.empty());
  const auto others = exports.find(tenant, second);
  EXPECT_TRUE(others.own.empty());
  ASSERT_EQ(others.of_neighbours.size(), 1U);
  EXPECT_EQ(others.of_neighbours.front()->bytes(), 3U);
  const int unknown = eventfd(0, EFD_CLOEXEC);
  EXPECT_TRUE(exports.find(tenant, unknown).own.empty()) << "those of all exports are open";
  const int copy = dup(first);
  close(first);
  EXPECT_EQ(exports.find(tenant, copy).own.size(), 1U) << "it may be";
  for (const int file : {second, unknown, copy}) close(file);
}

TEST_F(ExportsTest, ImportByAHandleIsTheMemoryThatHasIt) {
  exports.add(tenant, charge(10), Exports::Fabric{1});
  exports.add(neighbour, Charge::take(neighbours, Limit::device_memory, 3), Exports::Fabric{2});
  EXPECT_EQ(exports.find(tenant, Exports::Fabric{1}).own.size(), 1U);
  EXPECT_EQ(exports.find(tenant, Exports::Fabric{2}).of_neighbours.size(), 1U);
  const auto unknown = exports.find(tenant, Exports::Fabric{3});
  EXPECT_TRUE(unknown.own.empty() && unknown.of_neighbours.empty());
}

TEST_F(ExportsTest, MemoryThatMayBeAnyOfSeveralCountsAsAllOfThem) {
  auto any = Charge::any_of({charge(10), charge(20)});
  EXPECT_EQ(any->bytes(), 20U) << "it has at most";
  EXPECT_EQ(counted(), 30U);
  any = nullptr;
  EXPECT_EQ(counted(), 0U);
  EXPECT_EQ(Charge::any_of({}), nullptr);
}

}  // namespace
}  // namespace ctxbroker::detail
