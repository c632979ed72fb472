// SPDX-License-Identifier: Apache-2.0
// The neighbour of hung work makes something.
#include <unistd.h>

#include "ctxbroker/device_memory.hpp"
#include "hung_neighbour_fixture.hpp"

namespace ctxbroker {

using ::testing::HasSubstr;
using ::testing::Not;

// The driver makes no green context and loads no module beside the hung kernel.
bool HungNeighbour::make(Call call) {
  const LeaseChoice kind(std::get<1>(GetParam()));
  const bool green_meets = in_one_family() && kind.kind == LeaseKind::green;
  std::optional<PluginInstance> made;
  switch (call) {
    case Call::load:
      hang();
      expect_in_time([&] { static_cast<void>(broker.load(test_library("behaviours_twin"))); });
      break;
    case Call::create:
      hang();
      expect_answer_and_success_later(
          green_meets, [&] { made.emplace(idle_plugin("behaviours_twin", "scratch", kind)); });
      break;
    case Call::create_automatically: {
      hang();
      expect_in_time([&] { made.emplace(idle_plugin("behaviours_twin", "scratch", {})); },
                     making_a_context(LeaseKind::private_own));
      const bool meets = std::get<0>(GetParam()) != LeaseKind::private_own;
      EXPECT_EQ(made->lease().granted.kind, meets ? LeaseKind::private_own : LeaseKind::green);
      if (meets) {
        EXPECT_THAT(made->lease().reason, HasSubstr("private, because work of tenant guilty"));
      }
      expect_in_time([&] { made->activate(sizes); });
      std::vector<float> pixel(4, 1.F);
      Graph graph(broker, {&*made}, sizes);
      expect_in_time([&] { graph.process(pixel.data(), pixel.data(), {}); });
      break;
    }
    case Call::activate:
      made.emplace(idle_plugin("behaviours_twin", "scratch", kind));
      hang();
      expect_answer_and_success_later(in_one_family(), [&] { made->activate(sizes); });
      break;
    case Call::module_on_first_use: {
      made.emplace(plugin("behaviours_twin", "first_use"));
      std::vector<float> pixel(4, 1.F);
      Graph graph(broker, {&*made}, sizes);
      hang();
      expect_in_time([&] {
        try {
          graph.process(pixel.data(), pixel.data(), {});
          EXPECT_FALSE(in_one_family());
        } catch (const Error& error) {
          EXPECT_TRUE(in_one_family()) << error.what();
          EXPECT_THAT(error.what(), HasSubstr("work of tenant guilty"));
        }
      });
      EXPECT_EQ(made->lease().state, LeaseState::ready);
      break;
    }
    case Call::first_run: {
      Tenant late = broker.open_tenant("late", {kind});
      hang();
      expect_answer_and_success_later(green_meets, [&] { late.run(0, [] {}); });
      break;
    }
    case Call::second_thread: {
      hang();
      innocent->run(0, [&] {
        // It works in the context that is there, and needs no other.
        std::jthread([&] { expect_answer(false, [&] { innocent->run(0, [] {}); }); }).join();
      });
      break;
    }
    case Call::allocate:
      hang();
      expect_in_time([&] { EXPECT_NE(innocent->allocate(bytes), 0U); });
      expect_in_time([&] { EXPECT_NE(innocent->create_stream(), nullptr); });
      expect_in_time([&] {
        innocent->run(0, [] {
          void* pinned = nullptr;
          CUdeviceptr device = 0;
          EXPECT_EQ(driver_call("cuMemAllocHost_v2", &pinned, std::size_t{4096}), CUDA_SUCCESS);
          EXPECT_EQ(driver_call("cuMemAlloc_v2", &device, bytes), CUDA_SUCCESS);
        });
      });
      break;
    case Call::module_of_its_own:
      hang();
      load_module();
      break;
    case Call::module_beside_a_capture: {
      Tenant third = broker.open_tenant("third", {kind});
      const CaptureElsewhere capture(third);
      hang();
      load_module();
      break;
    }
    case Call::green_of_its_own: {
      CUdevResource whole{};
      CUdevResourceDesc described = nullptr;
      innocent->run(0, [&] {
        EXPECT_EQ(driver_call("cuDeviceGetDevResource", CUdevice{0}, &whole,
                              CUdevResourceType{CU_DEV_RESOURCE_TYPE_SM}),
                  CUDA_SUCCESS);
        EXPECT_EQ(driver_call("cuDevResourceGenerateDesc", &described, &whole, 1U), CUDA_SUCCESS);
      });
      hang();
      expect_in_time([&] {
        innocent->run(0, [&] {
          CUgreenCtx green = nullptr;
          const bool meets = std::get<0>(GetParam()) != LeaseKind::private_own;
          EXPECT_EQ(driver_call("cuGreenCtxCreate", &green, described, CUdevice{0},
                                unsigned{CU_GREEN_CTX_DEFAULT_STREAM}),
                    meets ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
        });
      });
      break;
    }
    case Call::create_beside_an_end: {
      // The driver makes no private context while it ends another one, and that waits for all work
      // on the device. When the work is known to hang, the end is put off.
      const LeaseChoice own(LeaseKind::private_own);
      Tenant third = broker.open_tenant("third", {own});
      third.run(0, [] {});
      hang();
      expect_in_time([&] { third.close(); });
      expect_answer_and_success_later(
          !is_known(), [&] { made.emplace(idle_plugin("behaviours_twin", "scratch", own)); });
      break;
    }
    case Call::stream_beside_a_load: {
      hang();
      load_module();  // which is left behind, unless it was not begun beside what hangs
      expect_in_time([&] {
        try {
          EXPECT_NE(innocent->create_stream(), nullptr);
        } catch (const Error& error) {
          EXPECT_TRUE(in_one_family() && !is_known()) << error.what();
          EXPECT_EQ(error.kind(), ErrorKind::lease_unavailable);
          EXPECT_THAT(error.what(), HasSubstr("a stream cannot be made: work of tenant guilty"));
        }
      });
      hung.let_go();
      EXPECT_TRUE(eventually([&] {
        try {
          return innocent->create_stream() != nullptr;
        } catch (const Error&) {
          return false;
        }
      }));
      break;
    }
    case Call::graph: {
      made.emplace(plugin("behaviours_twin", "scratch"));
      hang();
      std::optional<Graph> graph;
      expect_in_time([&] { graph.emplace(broker, std::vector<PluginInstance*>{&*made}, sizes); });
      expect_in_time([&] { graph.reset(); });
      EXPECT_EQ(made->lease().state, LeaseState::ready);
      break;
    }
    case Call::shared_memory:
      hang();
      expect_in_time([&] {
        try {
          DeviceMemory own_part = DeviceMemory::shareable(*innocent, bytes);
          const int descriptor = own_part.export_descriptor();
          try {
            DeviceMemory same = DeviceMemory::imported(*innocent, descriptor, bytes);
          } catch (const Error& error) {  // legacy IPC
            EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
          }
          ::close(descriptor);
        } catch (const Error& error) {  // a device that shares no memory
          EXPECT_EQ(error.kind(), ErrorKind::lease_unavailable) << error.what();
          EXPECT_THAT(error.what(), Not(HasSubstr("guilty")));
        }
      });
      hung.let_go();
      expect_nothing_put_off();
      break;
    default:
      return false;
  }
  return true;
}

}  // namespace ctxbroker
