// SPDX-License-Identifier: Apache-2.0
// Many plug-ins on one thread, by lease kind, against as many raw streams in the primary context:
//   - turns: each in turn launches an empty kernel and waits for it; the time of one turn;
//   - together: each launches one block that computes, as long as a block of a full device takes a
//     millisecond for, then all are waited for; the time until the last has ended.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "ctxbroker/tenant.hpp"
#include "support/benchmark_main.hpp"
#include "support/kernels.hpp"

namespace ctxbroker::bench {
namespace {

struct Party {
  Tenant* tenant = nullptr;  // null: the raw side
  std::unique_ptr<Module> module;
  CUfunction nothing = nullptr, work = nullptr;
  CUstream stream = nullptr;
};

Party make_party(Session& session, Tenant* tenant) {
  Party party;
  party.tenant = tenant;
  party.module = std::make_unique<Module>(session.raw(), kernel_image());
  party.nothing = party.module->function("nothing");
  party.work = party.module->function("work");
  CTXB_CALL(session.raw(), cuStreamCreate, &party.stream, CU_STREAM_NON_BLOCKING);
  return party;
}

// The two sides, made once and ended in the contexts that they belong to.
class Parties {
 public:
  Parties(Session& session, LeaseKind kind, unsigned count)
      : session_(session), primary_(session.host().lease().context) {
    {
      const Guard guard(session.host());
      for (unsigned i = 0; i < count; ++i) raw_.push_back(make_party(session, nullptr));
    }
    for (unsigned i = 0; i < count; ++i) {
      Tenant& tenant = session.tenant(kind, i);
      const Guard guard(tenant);
      tenants_.push_back(make_party(session, &tenant));
    }
  }
  ~Parties() {
    {
      const Guard guard(session_.host());
      for (Party& party : raw_) end(party);
    }
    for (Party& party : tenants_) {
      const Guard guard(*party.tenant);
      end(party);
    }
  }
  Parties(const Parties&) = delete;
  Parties& operator=(const Parties&) = delete;

  // Calls `each(party)` for every raw party, the primary current.
  template <typename Each>
  void raw(Each&& each) {
    session_.raw().cuCtxPushCurrent_v2(primary_);
    for (Party& party : raw_) each(party);
    CUcontext popped = nullptr;
    session_.raw().cuCtxPopCurrent_v2(&popped);
  }
  // And for every tenant, each under its guard.
  template <typename Each>
  void guarded(Each&& each) {
    for (Party& party : tenants_) {
      const Guard guard(*party.tenant);
      each(party);
    }
  }

 private:
  void end(Party& party) {
    session_.raw().cuStreamDestroy_v2(party.stream);
    party.module.reset();
  }

  Session& session_;
  CUcontext primary_;
  std::vector<Party> raw_, tenants_;
};

double turns(Session& session, LeaseKind kind, unsigned count, benchmark::State& state) {
  const CheckedDriver& driver = session.raw();
  Parties parties(session, kind, count);
  const auto turn = [&](Party& party) {
    driver.check(launch(driver, party.nothing, {}, party.stream, nullptr), "cuLaunchKernel");
    CTXB_CALL(driver, cuStreamSynchronize, party.stream);
  };
  const unsigned passes = session.quick() ? 1 : std::max(1U, 64 / count);
  const auto timed = [&](auto&& go_round) {
    const auto start = Clock::now();
    for (unsigned pass = 0; pass < passes; ++pass) go_round();
    return nanoseconds_since(start) / passes / count;
  };
  parties.raw(turn);  // the first launch of each loads its code
  parties.guarded(turn);
  return report(state, compare(
                           session.rounds(30), [&] { return timed([&] { parties.raw(turn); }); },
                           [&] { return timed([&] { parties.guarded(turn); }); }));
}

double together(Session& session, LeaseKind kind, unsigned count, benchmark::State& state) {
  const CheckedDriver& driver = session.raw();
  Parties parties(session, kind, count);
  unsigned rounds = 0;
  {
    const Guard guard(session.host());
    const Module module(driver, kernel_image());
    const Pace pace(driver, module.function("work"), session.device().multiprocessors);
    rounds = session.quick() ? 1 : pace.rounds(1000);
  }
  float* sink = nullptr;
  void* arguments[] = {&rounds, &sink};
  const auto begin = [&](Party& party) {
    driver.check(launch(driver, party.work, {1, Pace::threads}, party.stream, arguments),
                 "cuLaunchKernel");
  };
  const auto wait = [&](Party& party) { CTXB_CALL(driver, cuStreamSynchronize, party.stream); };
  const auto timed = [&](auto&& go_round) {
    const auto start = Clock::now();
    go_round();
    return nanoseconds_since(start);
  };
  const auto raw_side = [&] {
    return timed([&] {
      parties.raw(begin);
      parties.raw(wait);
    });
  };
  const auto tenants_side = [&] {
    return timed([&] {
      parties.guarded(begin);
      parties.guarded(wait);
    });
  };
  raw_side();
  tenants_side();
  return report(state, compare(session.rounds(10), raw_side, tenants_side));
}

void enrol(Session& session) {
  for (const LeaseKind kind : lease_kinds) {
    for (const unsigned count : {2U, 4U, 8U, 16U, 32U, 64U}) {
      if (session.quick() && count > 4) continue;
      const std::string name = std::string(to_string(kind)) + "/" + std::to_string(count);
      measure_once("turns/" + name, benchmark::kMicrosecond,
                   [&session, kind, count](benchmark::State& state) {
                     return turns(session, kind, count, state);
                   });
      measure_once("together/" + name, benchmark::kMicrosecond,
                   [&session, kind, count](benchmark::State& state) {
                     return together(session, kind, count, state);
                   });
    }
  }
}

}  // namespace
}  // namespace ctxbroker::bench

int main(int argc, char** argv) {
  return ctxbroker::bench::benchmark_main(argc, argv, "bench_switch", ctxbroker::bench::enrol);
}
