// SPDX-License-Identifier: Apache-2.0
// Makes calls about graphs and jobs at random, beside a model that knows what has to come of each.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "broker_fixture.hpp"
#include "job_sequence_draw.hpp"

namespace ctxbroker {

constexpr std::size_t units = 7;   // instances of one sequence
constexpr std::size_t graphs = 3;  // at most

// A job in flight: the host's memory, and what has to be in it.
struct Flight {
  std::uint64_t number = 0;
  Expected expected;
  std::vector<Bytes> outputs;
  bool may_fail = false;  // something happened beside it: it comes out right, or with an error
};

struct Drawn {
  ModelShape shape;
  ActivationSizes sizes;
  std::uint32_t most_in_flight = 1;
  std::uint64_t submitted = 0;
  ModelDelays delays{};
  std::deque<Flight> flights{};
  std::unique_ptr<Graph> graph{};  // last: its end writes to the outputs of what is in flight
};

// How often what happened, in all sequences.
struct Tally {
  std::uint64_t sequences = 0, finished = 0, refused = 0, failed = 0, renewed = 0, lost = 0;
};

class Player {
 public:
  // `foreign` is an instance of another broker.
  Player(Broker& broker, PluginInstance& foreign, unsigned seed, Tally& tally)
      : broker_(broker), foreign_(foreign), chance_(seed), tally_(tally) {
    while (units_.size() < units) {
      units_.push_back(make_unit());
      if (!chance_.one_in(3)) activate(units_.back());
    }
  }

  void step() {
    guarded([&] { any_step(); });
  }
  void end() {
    guarded([&] {
      while (!graphs_.empty()) end_graph(chance_.draw(graphs_.size()));
    });
  }
  // What went wrong first, or "".
  const std::string& wrong() const { return wrong_; }

 private:
  void guarded(const std::function<void()>& work) {
    try {
      if (wrong_.empty()) work();
    } catch (const std::exception& error) {
      fault(std::string("not expected: ") + error.what());
    }
  }
  void did(const std::string& what) { story_ += "\n  " + what; }
  void fault(const std::string& what) {
    if (wrong_.empty()) wrong_ = what + "; the sequence was:" + story_;
  }

  // The kind of the error that `call` throws; none if it returns.
  std::optional<ErrorKind> outcome(const std::function<void()>& call) {
    try {
      call();
      return {};
    } catch (const Error& error) {
      did(std::string("    ") + error.what());
      return error.kind();
    }
  }
  void refuses(ErrorKind kind, const char* what, const std::function<void()>& call) {
    const auto seen = outcome(call);
    ++tally_.refused;
    if (seen == kind) return;
    fault(std::string(what) + ": " + (seen ? to_string(*seen) : "no error") + ", and not " +
          to_string(kind));
  }

  // ---- Instances ------------------------------------------------------------------------------

  UnitPointer make_unit() {
    const PluginKind& kind = draw_kind(chance_);
    InstanceOptions options;
    options.device = Placement(0);
    constexpr LeaseKind leases[] = {LeaseKind::shared, LeaseKind::green, LeaseKind::automatic,
                                    LeaseKind::shared, LeaseKind::green, LeaseKind::private_own};
    options.lease = LeaseChoice(leases[chance_.draw(std::size(leases))]);
    options.job_graphs = !kind.counts_calls && chance_.one_in(4);
    did(std::string("create ") + kind.library + '.' + kind.plugin);
    return std::make_shared<Unit>(
        Unit{&kind, broker_.create(broker_.load(test_plugin(kind.library)), kind.plugin, options)});
  }

  std::string name(const UnitPointer& unit) const {
    const auto at = std::find(units_.begin(), units_.end(), unit) - units_.begin();
    return std::string(unit->kind->plugin) + '#' + std::to_string(at);
  }

  bool is_in(const Drawn& drawn, const UnitPointer& unit) const {
    return std::any_of(drawn.shape.nodes.begin(), drawn.shape.nodes.end(),
                       [&](const ModelNode& node) { return node.unit == unit; });
  }
  bool share(const Drawn& a, const Drawn& b) const {
    return std::any_of(a.shape.nodes.begin(), a.shape.nodes.end(),
                       [&](const ModelNode& node) { return is_in(b, node.unit); });
  }
  void jobs_of_may_fail(const UnitPointer& unit) {
    for (Drawn& drawn : graphs_) {
      if (!is_in(drawn, unit)) continue;
      for (Flight& flight : drawn.flights) flight.may_fail = true;
    }
  }

  void activate(const UnitPointer& unit) {
    const bool is_audio = unit->kind->media == Media::audio;
    unit->sizes.max_width = 4 + static_cast<std::uint32_t>(chance_.draw(12));
    unit->sizes.max_height = 1 + static_cast<std::uint32_t>(chance_.draw(is_audio ? 3 : 8));
    unit->sizes.sample_rate = !is_audio ? 0 : chance_.one_in(4) ? 44100 : 48000;
    unit->sizes.realtime = chance_.one_in(4);
    did("activate " + name(unit) + (unit->sizes.realtime ? " for real time" : ""));
    unit->instance.activate(unit->sizes);
    unit->is_active = true;
    ++unit->activation;
    renewed(*unit);
  }
  static void renewed(Unit& unit) {
    unit.is_lost = false;
    ++unit.generation;
    unit.history.assign(unit.sizes.max_height, 0);
    unit.is_history_certain = true;
  }

  void activate_or_deactivate() {
    const UnitPointer unit = chance_.any_of(units_);
    if (!unit->is_active) return activate(unit);
    if (chance_.one_in(3)) {
      refuses(ErrorKind::wrong_state, "activate again",
              [&] { unit->instance.activate(unit->sizes); });
    }
    did("deactivate " + name(unit) + (unit->is_lost ? ", which was lost" : ""));
    jobs_of_may_fail(unit);
    unit->instance.deactivate();
    unit->is_active = false;
    unit->is_lost = false;
    if (chance_.one_in(2)) activate(unit);
  }

  void set_parameter() {
    const UnitPointer unit = chance_.any_of(units_);
    if (std::string(unit->kind->plugin) == "ports") {
      return refuses(ErrorKind::unknown_parameter, "no parameter",
                     [&] { unit->instance.set_parameter("factor", 1); });
    }
    constexpr std::array factors{1.0, 2.0, 0.5, -1.0};
    const bool is_audio = unit->kind->media == Media::audio;
    const double factor =
        std::abs(factors[chance_.draw(factors.size())]) * (is_audio || chance_.one_in(2) ? 1 : -1);
    did("set a parameter of " + name(unit));
    if (chance_.one_in(5)) {
      return refuses(ErrorKind::parameter_value, "out of range", [&] {
        unit->instance.set_parameter(is_audio ? "gain" : "factor", std::nan(""));
      });
    }
    if (is_audio || chance_.one_in(2)) {
      unit->instance.set_parameter(is_audio ? "gain" : "factor", factor);
      unit->factor = factor;
      return;
    }
    const auto offset = static_cast<double>(chance_.draw(7)) - 3;
    const auto set = [&] { unit->instance.set_parameter("offset", offset); };
    if (unit->is_active) return refuses(ErrorKind::wrong_state, "not automatable", set);
    set();
    unit->offset = offset;
  }

  void lose() {
    const UnitPointer chosen = chance_.any_of(units_);
    did(std::string("give up the context of ") + chosen->kind->library);
    broker_.force_loss(broker_.load(test_plugin(chosen->kind->library)).tenant(), 0, "a test");
    for (const UnitPointer& unit : units_) {
      if (std::strcmp(unit->kind->library, chosen->kind->library) != 0) continue;
      jobs_of_may_fail(unit);
      if (unit->is_active) unit->is_lost = true;
    }
    if (chance_.one_in(2)) broker_.poll();
  }

  void replace() {
    const std::size_t at = chance_.draw(units_.size());
    for (std::size_t g = graphs_.size(); g-- > 0;) {
      if (is_in(graphs_[g], units_[at])) end_graph(g);
    }
    did("destroy " + name(units_[at]));
    units_[at].reset();
    units_[at] = make_unit();
  }

  // ---- Graphs ---------------------------------------------------------------------------------

  void make_graph() {
    if (graphs_.size() == graphs) return end_graph(chance_.draw(graphs_.size()));
    Drawn drawn;
    drawn.shape = draw_shape(chance_, units_, chance_.one_in(3) ? Media::audio : Media::image);
    if (drawn.shape.nodes.empty()) return;
    drawn.sizes = common_sizes(drawn.shape);
    drawn.most_in_flight = 1 + static_cast<std::uint32_t>(chance_.draw(4));
    GraphDescription description = describe(drawn.shape);
    GraphOptions options;
    options.jobs_in_flight = drawn.most_in_flight;
    options.measure = chance_.one_in(2);
    options.name_faults = chance_.one_in(2);
    std::string text = "make a graph of";
    for (const ModelNode& node : drawn.shape.nodes) text += ' ' + name(node.unit);
    did(text + ", " + std::to_string(drawn.most_in_flight) + " in flight");
    ActivationSizes sizes = drawn.sizes;
    const bool is_spoilt = chance_.one_in(6);
    if (is_spoilt) spoil(chance_, description, sizes, options, foreign_);
    std::shuffle(description.edges.begin(), description.edges.end(), chance_.random);
    const auto make = [&] {
      drawn.graph = std::make_unique<Graph>(broker_, description, sizes, options);
    };
    const auto& nodes = drawn.shape.nodes;
    const bool rates_differ = std::any_of(nodes.begin(), nodes.end(), [&](const ModelNode& node) {
      return node.unit->sizes.sample_rate != sizes.sample_rate;
    });
    if (is_spoilt || rates_differ) return refuses(ErrorKind::invalid_argument, "a graph", make);
    const bool is_lost_for_good = std::any_of(nodes.begin(), nodes.end(), lost_in_real_time);
    for (const ModelNode& node : nodes) {
      if (node.unit->is_lost) jobs_of_may_fail(node.unit);
    }
    if (is_lost_for_good) return refuses(ErrorKind::context_lost, "a lost context", make);
    make();
    follow(drawn);
    graphs_.push_back(std::move(drawn));
  }
  // The graph has renewed what was lost.
  static void follow(Drawn& drawn) {
    for (ModelNode& node : drawn.shape.nodes) {
      if (node.unit->is_lost) renewed(*node.unit);
      node.activation = node.unit->activation;
      node.generation = node.unit->generation;
    }
  }
  static bool lost_in_real_time(const ModelNode& node) {
    return node.unit->is_lost && node.unit->sizes.realtime;
  }

  void end_graph(std::size_t at) {
    did("destroy a graph with " + std::to_string(graphs_[at].flights.size()) + " in flight");
    Drawn& drawn = graphs_[at];
    drawn.graph.reset();  // finishes them
    if (may_fail(drawn)) uncertain(drawn);
    while (!drawn.flights.empty() && !may_fail(drawn)) arrived(drawn);
    graphs_.erase(graphs_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void move_graph() {
    if (graphs_.empty()) return;
    Drawn& drawn = chance_.any_of(graphs_);
    did("move a graph");
    Graph moved = std::move(*drawn.graph);
    Graph& empty = *drawn.graph;
    refuses(ErrorKind::wrong_state, "submit", [&] { empty.submit({}, {}); });
    refuses(ErrorKind::wrong_state, "finish", [&] { empty.finish(1); });
    refuses(ErrorKind::wrong_state, "is_done", [&] { static_cast<void>(empty.is_done(1)); });
    refuses(ErrorKind::wrong_state, "process", [&] { empty.process(nullptr, nullptr, {}); });
    empty = std::move(moved);
  }

  // ---- Jobs -----------------------------------------------------------------------------------

  static bool may_fail(const Drawn& drawn) {
    return std::any_of(drawn.flights.begin(), drawn.flights.end(),
                       [](const Flight& flight) { return flight.may_fail; });
  }
  static void uncertain(const Drawn& drawn) {
    for (const ModelNode& node : drawn.shape.nodes) node.unit->is_history_certain = false;
  }

  // An instance was deactivated since the graph was made.
  static bool is_stale(const Drawn& drawn) {
    return std::any_of(drawn.shape.nodes.begin(), drawn.shape.nodes.end(),
                       [](const ModelNode& node) {
                         return !node.unit->is_active || node.unit->activation != node.activation;
                       });
  }

  // The oldest job is finished: its outputs are there.
  void arrived(Drawn& drawn) {
    const Flight flight = std::move(drawn.flights.front());
    drawn.flights.pop_front();
    ++tally_.finished;
    if (flight.outputs != flight.expected.outputs) {
      fault("job " + std::to_string(flight.number) + " has wrong outputs");
    }
  }
  void untouched_so_far(const Drawn& drawn) {
    for (const Flight& flight : drawn.flights) {
      for (const Bytes& output : flight.outputs) {
        if (std::any_of(output.begin(), output.end(), [](std::byte b) { return b != untouched; })) {
          fault("an output was written before its job was finished");
        }
      }
    }
  }
  // An older job failed: none is in flight any more.
  void lost_flights(Drawn& drawn, ErrorKind kind) {
    if (!may_fail(drawn)) fault(std::string("a job in flight failed: ") + to_string(kind));
    uncertain(drawn);
    tally_.lost += drawn.flights.size();
    drawn.flights.clear();
  }

  void finish(Drawn& drawn, std::uint64_t job) {
    did("finish job " + std::to_string(job) + " of " + std::to_string(drawn.submitted));
    auto how = JobOutcome::forgotten;
    const auto kind = outcome([&] { how = drawn.graph->finish(job); });
    if (kind) return lost_flights(drawn, *kind);
    const bool is_new = !drawn.flights.empty() && job >= drawn.flights.front().number;
    if (how != JobOutcome::done && (is_new || how != JobOutcome::forgotten)) {
      fault(std::string("the job is ") + to_string(how));
    }
    while (!drawn.flights.empty() && drawn.flights.front().number <= job) arrived(drawn);
    untouched_so_far(drawn);
  }

  void finish_some() {
    if (graphs_.empty()) return;
    Drawn& drawn = chance_.any_of(graphs_);
    const std::uint64_t job = chance_.draw(drawn.submitted + 2);
    if (job == 0 || job > drawn.submitted) {
      did("ask for job " + std::to_string(job) + " of " + std::to_string(drawn.submitted));
      refuses(ErrorKind::invalid_argument, "is_done",
              [&] { static_cast<void>(drawn.graph->is_done(job)); });
      return refuses(ErrorKind::invalid_argument, "finish", [&] { drawn.graph->finish(job); });
    }
    const bool is_over = drawn.flights.empty() || job < drawn.flights.front().number;
    if (!drawn.graph->is_done(job) && is_over) fault("a finished job is not done");
    finish(drawn, job);
  }

  void submit_wrong(Drawn& drawn) {
    GivenJob job = draw_job(chance_, drawn.shape, drawn.sizes);
    spoil(chance_, job, drawn.sizes);
    did("submit a wrong job");
    refuses(ErrorKind::invalid_argument, "a wrong job",
            [&] { drawn.graph->submit(job.buffers, job.info); });
    untouched_so_far(drawn);
  }

  void submit() {
    if (graphs_.empty()) return;
    Drawn& drawn = chance_.any_of(graphs_);
    if (chance_.one_in(6)) return submit_wrong(drawn);
    for (Drawn& other : graphs_) {
      if (&other != &drawn && !other.flights.empty() && share(other, drawn)) {
        finish(other, other.submitted);
      }
    }
    GivenJob job = draw_job(chance_, drawn.shape, drawn.sizes);
    job.info.position = static_cast<std::int64_t>(drawn.submitted);
    const bool stale = is_stale(drawn);
    const auto& nodes = drawn.shape.nodes;
    const auto is_uncertain = [](const ModelNode& node) { return !node.unit->is_history_certain; };
    const bool is_lost = std::any_of(nodes.begin(), nodes.end(), [](const ModelNode& node) {
      return node.unit->is_lost || node.generation != node.unit->generation;
    });
    if (std::any_of(nodes.begin(), nodes.end(), is_uncertain)) job.info.discontinuity = true;
    JobInfo as_run = job.info;
    as_run.discontinuity = job.info.discontinuity || is_lost;
    Flight flight{drawn.submitted + 1, {}, {}};
    if (!stale) flight.expected = expect(drawn.shape, job.inputs, as_run, drawn.delays);
    did("submit job " + std::to_string(flight.number) + ", " +
        std::to_string(drawn.flights.size()) + " in flight");
    const bool is_lost_for_good = std::any_of(nodes.begin(), nodes.end(), lost_in_real_time);
    std::uint64_t number = 0;
    const auto kind = outcome([&] { number = drawn.graph->submit(job.buffers, job.info); });
    job.inputs.clear();  // they were read
    if (kind) drawn.delays = {};
    if (kind) return failed(drawn, *kind, stale, is_lost_for_good, flight.expected);
    if (stale) return fault("a job with an instance that was deactivated");
    if (is_lost_for_good) return fault("a job of real time renewed a context");
    if (flight.expected.fate == Fate::fails) return fault("a job succeeded that has to fail");
    if (number != flight.number) return fault("the job's number is " + std::to_string(number));
    flight.outputs = std::move(job.outputs);
    drawn.submitted = number;
    drawn.delays = flight.expected.delays;
    if (is_lost) ++tally_.renewed;
    follow(drawn);
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      Unit& unit = *nodes[n].unit;
      unit.history = flight.expected.histories[n];
      unit.is_history_certain = true;
    }
    while (drawn.flights.size() >= (is_lost ? 1 : drawn.most_in_flight)) arrived(drawn);
    drawn.flights.push_back(std::move(flight));
    if (chance_.one_in(3)) finish(drawn, number);
  }

  // `kind` is what submit threw.
  void failed(Drawn& drawn, ErrorKind kind, bool stale, bool is_lost_for_good,
              const Expected& expected) {
    if (stale) {
      if (kind != ErrorKind::wrong_state) fault(std::string("stale: ") + to_string(kind));
      return;
    }
    if (kind == ErrorKind::context_lost && (is_lost_for_good || may_fail(drawn))) {
      // Whether this job failed or an older one, nobody waits for those in flight any more.
      if (!drawn.flights.empty()) outcome([&] { drawn.graph->finish(drawn.submitted); });
      drawn.flights.clear();
      return uncertain(drawn);
    }
    if (is_lost_for_good || expected.fate == Fate::succeeds || kind != ErrorKind::plugin_failed) {
      return fault(std::string("a job failed: ") + to_string(kind));
    }
    ++tally_.failed;
    // Before it failed, lost contexts were renewed. The others are still in flight, or finished.
    follow(drawn);
    uncertain(drawn);
    if (!drawn.flights.empty()) finish(drawn, drawn.submitted);
  }

  void any_step() {
    switch (chance_.draw(12)) {
      case 0:
        return make_graph();
      case 1:
        return activate_or_deactivate();
      case 2:
        return set_parameter();
      case 3:
        return chance_.one_in(2) ? lose() : broker_.poll();
      case 4:
        return chance_.one_in(3) ? replace() : move_graph();
      case 5:
      case 6:
        return finish_some();
      case 7:
        if (!graphs_.empty() && chance_.one_in(4)) return end_graph(chance_.draw(graphs_.size()));
        return make_graph();
      default:
        return submit();
    }
  }

  Broker& broker_;
  PluginInstance& foreign_;
  Chance chance_;
  Tally& tally_;
  std::string story_, wrong_;
  std::vector<UnitPointer> units_;
  std::vector<Drawn> graphs_;  // after the units, which they need
};

}  // namespace ctxbroker
