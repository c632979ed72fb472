// SPDX-License-Identifier: Apache-2.0
// What putting a thread into a lease's context costs, against the driver's own push and pop:
//   - outermost: a guard around nothing, on a thread without a context, and on one that has the
//     primary context current, which the guard takes away and gives back; and with two leases in
//     turns;
//   - nested: a guard inside another one of the same lease; "raw" is one cuCtxGetCurrent there.
//     Inside a thread's first guard of all, too: there is more to know of that one.
// By lease kind, with 1, 2, 4 and 8 threads, each in a lease of its own and all in one. Eight
// leases take their turns in every case, for where a context lies makes a difference of up to a
// tenth, and in a few places more. Allocations are counted on the measuring threads.
#include <cstdint>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ctxbroker/tenant.hpp"
#include "support/allocation_count.hpp"
#include "support/benchmark_main.hpp"
#include "support/meeting_point.hpp"

namespace ctxbroker::bench {
namespace {

enum class Shape { outermost, over_a_context, in_turns, nested, nested_in_first };
enum class Place { own, one };  // each thread in its own lease, or all in the same

constexpr unsigned most_threads = 8;

struct Case {
  LeaseKind kind;
  Shape shape;
  Place place;
  unsigned threads;
};

struct ShapeName {
  Shape shape;
  const char* name;
};
constexpr ShapeName shapes[] = {{Shape::outermost, "outermost"},
                                {Shape::over_a_context, "outermost_over_a_context"},
                                {Shape::in_turns, "outermost_in_turns"},
                                {Shape::nested, "nested"},
                                {Shape::nested_in_first, "nested_in_first"}};

bool is_nested(Shape shape) {
  return shape == Shape::nested || shape == Shape::nested_in_first;
}

struct Entrant {
  Tenant* tenant = nullptr;
  Tenant* other = nullptr;
  CUcontext outside = nullptr;  // what the thread may have current before
};

// What one thread saw.
struct Seen {
  Comparison times;
  std::uint64_t raw_allocations = 0, broker_allocations = 0;
};

template <typename Once>
double batch(unsigned count, Once&& once) {
  const auto start = Clock::now();
  for (unsigned i = 0; i < count; ++i) once();
  return nanoseconds_since(start) / count;
}

void raw_pair(const CheckedDriver& raw, CUcontext context) {
  CUcontext popped = nullptr;
  raw.cuCtxPushCurrent_v2(context);
  raw.cuCtxPopCurrent_v2(&popped);
}

// What a guard makes current on this thread: of a green lease it is the thread's own sibling, and
// pushes of two contexts do not cost the same.
CUcontext guarded_context(const CheckedDriver& raw, Tenant& tenant) {
  const Guard guard(tenant);
  CUcontext current = nullptr;
  CTXB_CALL(raw, cuCtxGetCurrent, &current);
  return current;
}

// Raw pushes of a context that the driver refuses would look fast.
void prove_push(const CheckedDriver& raw, CUcontext context) {
  CUcontext popped = nullptr;
  CTXB_CALL(raw, cuCtxPushCurrent_v2, context);
  CTXB_CALL(raw, cuCtxPopCurrent_v2, &popped);
  if (popped != context) throw std::runtime_error("a push and a pop do not meet");
}

double raw_batch_of(const CheckedDriver& raw, Shape shape, unsigned count, CUcontext context,
                    CUcontext other) {
  if (is_nested(shape)) {
    return batch(count, [&] {
      CUcontext current = nullptr;
      raw.cuCtxGetCurrent(&current);
    });
  }
  if (shape != Shape::in_turns) return batch(count, [&] { raw_pair(raw, context); });
  return batch(count / 2,
               [&] {
                 raw_pair(raw, context);
                 raw_pair(raw, other);
               }) /
         2;
}

double broker_batch_of(Shape shape, unsigned count, Tenant& tenant, Tenant& other) {
  if (shape != Shape::in_turns) return batch(count, [&] { const Guard guard(tenant); });
  return batch(count / 2,
               [&] {
                 { const Guard guard(tenant); }
                 { const Guard guard(other); }
               }) /
         2;
}

// All threads measure the same side at the same time.
Seen measure(const CheckedDriver& raw, const Entrant& entrant, Shape shape, unsigned rounds,
             unsigned count, MeetingPoint& together) {
  Tenant& tenant = *entrant.tenant;
  CUcontext const context = guarded_context(raw, tenant);
  CUcontext const other = guarded_context(raw, *entrant.other);
  prove_push(raw, context);
  prove_push(raw, other);
  Seen seen;
  seen.times.raw.reserve(rounds);
  seen.times.broker.reserve(rounds);
  const auto raw_batch = [&] {
    together.meet();
    const std::uint64_t before = allocations_of_this_thread();
    const double took = raw_batch_of(raw, shape, count, context, other);
    seen.raw_allocations += allocations_of_this_thread() - before;
    return took;
  };
  const auto broker_batch = [&] {
    together.meet();
    const std::uint64_t before = allocations_of_this_thread();
    const double took = broker_batch_of(shape, count, tenant, *entrant.other);
    seen.broker_allocations += allocations_of_this_thread() - before;
    return took;
  };
  raw_batch();  // warm, and the green lease's sibling for this thread stands
  broker_batch();
  seen.raw_allocations = seen.broker_allocations = 0;
  seen.times = compare(rounds, raw_batch, broker_batch);
  return seen;
}

Seen run_thread(const CheckedDriver& raw, const Entrant& entrant, Shape shape, unsigned rounds,
                unsigned count, MeetingPoint& together) {
  if (shape == Shape::outermost || shape == Shape::in_turns) {
    return measure(raw, entrant, shape, rounds, count, together);
  }
  if (is_nested(shape)) {
    if (shape == Shape::nested) guarded_context(raw, *entrant.tenant);
    const Guard outer(*entrant.tenant);
    return measure(raw, entrant, shape, rounds, count, together);
  }
  CTXB_CALL(raw, cuCtxPushCurrent_v2, entrant.outside);
  Seen seen = measure(raw, entrant, shape, rounds, count, together);
  CUcontext popped = nullptr;
  CTXB_CALL(raw, cuCtxPopCurrent_v2, &popped);
  return seen;
}

void add(Seen& all, const Seen& seen) {
  all.times.raw.insert(all.times.raw.end(), seen.times.raw.begin(), seen.times.raw.end());
  all.times.broker.insert(all.times.broker.end(), seen.times.broker.begin(),
                          seen.times.broker.end());
  all.raw_allocations += seen.raw_allocations;
  all.broker_allocations += seen.broker_allocations;
}

// In the leases from `first` on.
void run_threads(Session& session, const Case& one, unsigned first, unsigned rounds, unsigned count,
                 Seen& all) {
  MeetingPoint together(one.threads);
  std::vector<Seen> seen(one.threads);
  std::vector<Entrant> entrants;
  const CUcontext outside = session.host().lease().context;
  for (unsigned i = 0; i < one.threads; ++i) {
    const unsigned index = first + (one.place == Place::own ? i : 0);
    Tenant& tenant = session.tenant(one.kind, index);
    Tenant* const other = one.shape == Shape::in_turns
                              ? &session.tenant(one.kind, most_threads + first + i)
                              : &tenant;
    entrants.push_back({&tenant, other, outside});
  }
  std::mutex mutex;
  std::exception_ptr failure;
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < one.threads; ++i) {
      threads.emplace_back([&, i] {
        try {
          seen[i] = run_thread(session.raw(), entrants[i], one.shape, rounds, count, together);
        } catch (...) {
          together.fail();
          const std::lock_guard lock(mutex);
          failure = std::current_exception();
        }
      });
    }
  }
  if (failure) std::rethrow_exception(failure);
  for (const Seen& of : seen) add(all, of);
}

double run(Session& session, const Case& one, benchmark::State& state) {
  const unsigned count = session.quick() ? 20 : 5000;
  const unsigned sets = session.quick() ? 1 : most_threads / one.threads;
  const unsigned rounds = session.rounds(40) / sets;
  Seen all;
  for (unsigned set = 0; set < sets; ++set) {
    run_threads(session, one, set * one.threads, rounds, count, all);
  }
  if (allocations_are_counted()) {
    state.counters["raw_allocations"] = static_cast<double>(all.raw_allocations);
    state.counters["allocations"] = static_cast<double>(all.broker_allocations);
  }
  return report(state, std::move(all.times));
}

void enrol(Session& session) {
  for (const ShapeName& shape : shapes) {
    for (const LeaseKind kind : lease_kinds) {
      for (const unsigned threads : {1U, 2U, 4U, 8U}) {
        for (const Place place : {Place::own, Place::one}) {
          if (threads == 1 && place == Place::one) continue;
          const Case one{kind, shape.shape, place, threads};
          measure_once(
              std::string(shape.name) + "/" + to_string(kind) + "/" + std::to_string(threads) +
                  (threads == 1          ? "_thread"
                   : place == Place::own ? "_threads_each_own"
                                         : "_threads_in_one"),
              benchmark::kNanosecond,
              [&session, one](benchmark::State& state) { return run(session, one, state); });
        }
      }
    }
  }
}

}  // namespace
}  // namespace ctxbroker::bench

int main(int argc, char** argv) {
  return ctxbroker::bench::benchmark_main(argc, argv, "bench_guard", ctxbroker::bench::enrol);
}
