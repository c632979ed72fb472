// SPDX-License-Identifier: Apache-2.0
// The neighbour of hung work ends something.
#include "hung_neighbour_fixture.hpp"

namespace ctxbroker {

// What would wait for the hung kernel is put off.
bool HungNeighbour::end(Call call) {
  std::optional<PluginInstance> scratch;
  switch (call) {
    case Call::deactivate:
      scratch = plugin("behaviours_twin", "scratch");
      hang();
      expect_in_time([&] { scratch->deactivate(); });
      EXPECT_EQ(scratch->lease().state, LeaseState::ready);
      expect_put_off("behaviours_twin", bytes);
      break;
    case Call::destroy:
      scratch = plugin("behaviours_twin", "scratch");
      hang();
      expect_in_time([&] { scratch.reset(); });
      expect_put_off("behaviours_twin", bytes);
      break;
    case Call::unload_library:
      scratch = plugin("behaviours_unloadable", "scratch");
      hang();
      expect_in_time([&] { scratch.reset(); });  // its library's last
      expect_put_off("behaviours_unloadable", bytes);
      break;
    case Call::release:
      hang();
      expect_in_time([&] { innocent->release(memory); });
      EXPECT_EQ(innocent->memory_bytes(), frees_wait() ? bytes : 0) << "it stays counted";
      expect_put_off("innocent", bytes);
      EXPECT_EQ(innocent->memory_bytes(), 0U);
      break;
    case Call::free_of_its_own:
      hang();
      expect_in_time([&] {
        EXPECT_EQ(innocent->run(0, [&] { return driver_call("cuMemFree_v2", own); }), CUDA_SUCCESS);
      });
      expect_put_off("innocent", bytes);
      break;
    case Call::other_ends_of_its_own: {
      const auto things = std::make_unique<Things>();
      innocent->run(0, [&] { things->make(); });
      hang();
      expect_in_time([&] { innocent->run(0, [&] { things->end(); }); });
      hung.let_go();
      expect_nothing_put_off();
      break;
    }
    case Call::close_tenant:
      hang();
      expect_in_time([&] { innocent->close(); });
      expect_put_off("innocent", 2 * bytes);
      break;
    case Call::close_tenant_with_a_context:
      innocent->run(0, [] {
        CUcontext made = nullptr;
        EXPECT_EQ(driver_call("cuCtxCreate_v2", &made, 0U, CUdevice{0}), CUDA_SUCCESS);
        EXPECT_EQ(driver_call("cuCtxPopCurrent_v2", &made), CUDA_SUCCESS);
      });
      hang();
      expect_in_time([&] { innocent->close(); });
      // A shared lease has no context of its own that could be put off.
      if (std::get<1>(GetParam()) == LeaseKind::shared && is_known()) {
        const std::vector<PutOffMetrics> put_off = broker.metrics().put_off;
        EXPECT_TRUE(std::any_of(put_off.begin(), put_off.end(), [](const PutOffMetrics& one) {
          return one.tenant_name == "innocent" && one.what == "context";
        }));
      }
      hung.let_go();
      expect_nothing_put_off();
      break;
    case Call::close_broker: {
      hang();
      innocent->close();
      guilty->close();
      innocent.reset();
      guilty.reset();
      const std::size_t before = hung.free_memory();
      expect_in_time([&] { broker.close(); });
      hung.let_go();
      if (frees_wait()) {
        EXPECT_TRUE(eventually([&] { return hung.free_memory() >= before + 2 * bytes; }));
      }
      break;
    }
    default:
      return false;
  }
  return true;
}

}  // namespace ctxbroker
