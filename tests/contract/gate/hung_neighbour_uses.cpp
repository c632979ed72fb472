// SPDX-License-Identifier: Apache-2.0
// The neighbour of hung work and its host use what is there.
#include <future>
#include <vector>

#include "ctxbroker/preset.hpp"
#include "hung_neighbour_fixture.hpp"

namespace ctxbroker {

bool HungNeighbour::use(Call call) {
  std::vector<float> pixel(4, 1.F);
  std::optional<PluginInstance> scratch;
  switch (call) {
    case Call::process: {
      scratch = plugin("behaviours_twin", "scratch");
      Graph graph(broker, {&*scratch}, sizes);
      graph.process(pixel.data(), pixel.data(), {});
      hang();
      expect_in_time([&] { graph.process(pixel.data(), pixel.data(), {}); });
      EXPECT_EQ(scratch->lease().state, LeaseState::ready);
      hung.let_go();
      break;
    }
    case Call::synchronize: {
      hang();
      // Of a shared lease the context is that of all; a green one is waited for alone.
      const bool meets = in_one_family() && kind() == LeaseKind::shared;
      expect_in_time([&] {
        EXPECT_EQ(innocent->run(0, [] { return driver_call("cuCtxSynchronize"); }),
                  meets ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
      });
      if (meets && broker.driver().version >= 13000) {  // null is the current context, too
        expect_in_time([&] {
          EXPECT_EQ(
              innocent->run(0, [] { return driver_call("cuCtxSynchronize_v2", CUcontext{}); }),
              CUDA_ERROR_NOT_READY);
        });
      }
      hung.let_go();
      break;
    }
    case Call::poll:
      hang();
      expect_in_time([&] { broker.poll(); });
      expect_in_time([&] { EXPECT_FALSE(broker.leases().empty()); });
      break;
    case Call::preset: {
      scratch.emplace(idle_plugin("behaviours_twin", "scratch", LeaseChoice(kind())));
      hang();
      expect_in_time([&] { EXPECT_TRUE(load_preset(*scratch, save_preset(*scratch)).empty()); });
      break;
    }
    case Call::use_device: {
      std::optional<Broker> other;
      hang();
      expect_in_time([&] { broker.use_device(0); });
      // It has no shield yet. That is a green context.
      if (!is_known()) other.emplace(Broker::open(options()));
      const bool meets = std::get<0>(GetParam()) != LeaseKind::private_own;
      if (other) expect_answer_and_success_later(meets, [&] { other->use_device(0); });
      break;
    }
    case Call::realtime: {
      EXPECT_TRUE(broker.wait_until_ready());
      Tenant late = broker.open_tenant("late", {LeaseChoice(LeaseKind::green)});
      hang();
      expect_in_time([&] { late.run(0, [] {}); });  // in the context that stood ready
      expect_in_time([&] { static_cast<void>(broker.wait_until_ready()); });
      expect_in_time([&] { broker.begin_realtime(); });
      broker.end_realtime();
      break;
    }
    case Call::peer_access:
      hang();
      if (broker.devices().size() < 2) break;
      expect_in_time(
          [&] {
            try {
              innocent->enable_peer_access(0, 1);
            } catch (const Error& error) {  // the devices cannot reach each other
              EXPECT_EQ(error.kind(), ErrorKind::lease_unavailable) << error.what();
            }
          },
          making_a_context(kind()));
      break;
    case Call::unload_idle_modules:
      scratch = plugin("behaviours_twin", "scratch");
      scratch->deactivate();
      hang();
      expect_in_time([&] { static_cast<void>(broker.unload_idle_modules(0)); });
      hung.let_go();
      expect_nothing_put_off();
      break;
    case Call::force_loss:
      hang();
      expect_in_time([&] { EXPECT_TRUE(broker.force_loss(innocent->id(), 0, "a test")); });
      expect_in_time([&] { broker.poll(); });
      expect_in_time([&] { renew(); }, making_a_context(kind()));
      break;
    case Call::poll_beside_a_renewal: {
      hang();
      EXPECT_TRUE(broker.force_loss(innocent->id(), 0, "a test"));
      auto renewal = std::async(std::launch::async, [&] { renew(); });
      expect_in_time([&] { broker.poll(); });
      expect_in_time([&] { static_cast<void>(broker.metrics()); });
      expect_in_time([&] { EXPECT_FALSE(broker.leases().empty()); });
      expect_in_time([&] { renewal.get(); }, making_a_context(kind()));
      break;
    }
    default:
      return false;
  }
  return true;
}

}  // namespace ctxbroker
