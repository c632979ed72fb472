#include "context/occupancy.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>
#include <vector>

namespace ctxbroker::detail {
namespace {

// More threads than have a counter of their own.
TEST(OccupancyTest, CountsEveryThread) {
  constexpr int threads = 100, rounds = 1000;
  Occupancy occupancy(reinterpret_cast<CUcontext>(&occupancy));
  std::barrier together(threads + 1);
  std::vector<std::jthread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      CUcontext context = nullptr;
      Seat* seat = nullptr;
      for (int round = 0; round < rounds; ++round) {
        ASSERT_EQ(occupancy.enter(&context, &seat), CUDA_SUCCESS);
        occupancy.leave(seat);
      }
      occupancy.enter(&context, &seat);
      together.arrive_and_wait();  // all are inside
      together.arrive_and_wait();
      occupancy.leave(seat);
    });
  }
  together.arrive_and_wait();
  EXPECT_EQ(occupancy.inside(), threads);
  together.arrive_and_wait();
  all.clear();
  EXPECT_EQ(occupancy.inside(), 0);
  EXPECT_EQ(occupancy.entered(), std::uint64_t{threads} * (rounds + 1));
}

}  // namespace
}  // namespace ctxbroker::detail
