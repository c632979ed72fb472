// SPDX-License-Identifier: Apache-2.0
// How a graph in a worker comes into a process, now and after each end of one.
#include <chrono>
#include <string>
#include <utility>

#include "ctxbroker/error.hpp"
#include "worker/graph_client.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {

bool GraphClient::is_set_up() const {
  return set_up_ && worker_.state() == WorkerState::ready && worker_.ends() == ends_;
}

void GraphClient::set_up() {
  if (is_set_up()) return;
  if (oldest() != nullptr) {  // the host has to hear of them
    give_up_jobs();
    if (!options_.dry_while_away) stale();
  }
  set_up_ = false;
  const bool again = !nodes_.empty();
  if (!take_next()) {
    start_process();
    if (again) restore_all();
  }
  discontinuity_ = again;
  arrive();
}

void GraphClient::arrive() {
  set_up_ = true;
  regions_.clear();
  if (dry_jobs_ != 0) {
    worker_.impl_->tell(Severity::info, "it is back; " + std::to_string(dry_jobs_) +
                                            " jobs had the dry signal meanwhile");
    dry_jobs_ = 0;
  }
  prepare_stand_by();
}

bool GraphClient::get_ready() {
  if (is_set_up()) return true;
  if (!options_.dry_while_away) {
    set_up();
    return true;
  }
  give_up_jobs();
  const WorkerState state = worker_.state();
  // A process that is ready knows nothing of the graph, because another call has failed half-way.
  if (state != WorkerState::missing && state != WorkerState::ready) return false;
  if (!next_has_settings_) prepare_return();
  if (!next_.valid() || next_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return false;
  }
  set_up_ = false;
  try {
    if (!take_next()) return false;
  } catch (const std::exception& error) {
    worker_.impl_->give_up("it did not come back: " + std::string(error.what()) +
                           "; WorkerGraph::pardon tries again");
    return false;
  }
  discontinuity_ = true;
  arrive();
  return true;
}

// A stand-by that is still starting is there sooner than a new process.
bool GraphClient::take_next() {
  if (!next_.valid() || worker_.state() == WorkerState::quarantined) return false;
  const bool has_settings = std::exchange(next_has_settings_, false);
  std::unique_ptr<GraphClient> next;
  try {
    next = next_.get();
  } catch (const std::exception& error) {
    if (has_settings) throw;
    worker_.impl_->tell(Severity::warning,
                        std::string("the stand-by did not start: ") + error.what());
    return false;
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) must_be_unchanged(i, next->nodes_[i]);
  const std::uint64_t ends = worker_.ends();
  if (!next->is_set_up() || !next->worker_.impl_->follow(*worker_.impl_, *next->in_charge_)) {
    // It was there, and has ended since. Otherwise a plug-in that ends it at once would do so
    // without end.
    if (has_settings) worker_.impl_->count_end_of(*next->worker_.impl_);
    return false;
  }
  {
    const std::lock_guard lock(worker_mutex_);
    worker_.impl_.swap(next->worker_.impl_);
  }
  in_charge_.swap(next->in_charge_);
  epoch_ = next->epoch_;
  ends_ = ends;
  driver_ = next->driver_;
  devices_ = next->devices_;
  // If it lives, it has failed half-way. It must not write into the blocks of the next process.
  if (!has_settings && next->worker_.process_id() != 0) next->worker_.close();
  drop_blocks();
  document_ = std::exchange(next->document_, {});
  worker_.impl_->take_blocks_of(*next->worker_.impl_);  // from WorkerGraph::lend
  retired_ = std::move(next);
  if (has_settings) {
    bring_up_to_date(*retired_);
  } else {
    restore_all();
  }
  return true;
}

void GraphClient::restore_all() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) restore(i);
  for (const auto& device : lent_devices_->all) give(*device);
  if (active_) send_activation();
}

// The process has the settings of `next`. Since they were taken, the host may have set parameters
// and deactivated the graph. For all else it has to wait for the process.
void GraphClient::bring_up_to_date(GraphClient& next) {
  if (next.active_ && !active_) ask(graph_deactivate, Json::object());
  for (const auto& device : lent_devices_->all) give(*device);
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const Node& is = nodes_[n];
    const Node& was = next.nodes_[n];
    for (std::size_t i = 0; i < is.values.size(); ++i) {
      const ParameterDescription& parameter = is.description.parameters[i];
      const bool is_text = parameter.is_text();
      if (is_text ? is.texts[i] == was.texts[i] : is.values[i] == was.values[i]) continue;
      ask(graph_set, {{"node", n},
                      {"id", parameter.id},
                      {"value", is_text ? Json(is.texts[i]) : to_json(is.values[i])}});
    }
  }
  if (!active_) return;
  if (!next.active_) return send_activation();
  if (next.latency_ != latency_) dry_lines_.swap(next.dry_lines_);  // it has made them for this
  latency_ = next.latency_;
  take_activation(next.job_inputs_, next.latency_, next.latency_before_);
}

void GraphClient::take_settings(const Settings& settings) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) must_be_unchanged(i, settings.nodes[i]);
  nodes_ = settings.nodes;
  description_.inputs = settings.inputs;
  description_.outputs = settings.outputs;
  sizes_ = settings.sizes;
  for (std::size_t i = 0; i < nodes_.size(); ++i) restore(i);
  if (settings.active) send_activation();
  active_ = settings.active;
}

// With the settings of now, so that a job need not wait for them.
void GraphClient::prepare_return() noexcept {
  try {
    WorkerGraphOptions options = options_;
    options.stand_by = false;
    auto make = [retired = std::move(retired_), stand_by = std::move(next_),
                 description = description_, options,
                 settings =
                     Settings{nodes_, description_.inputs, description_.outputs, sizes_, active_},
                 scheduling = scheduling_]() mutable {
      scheduling.apply();
      retired.reset();
      std::unique_ptr<GraphClient> next;
      try {
        if (stand_by.valid()) next = stand_by.get();
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): another one is made
      }
      if (!next || !next->is_set_up()) {
        next = std::make_unique<GraphClient>(std::move(description), options, Role::stand_by);
      }
      next->take_settings(settings);
      return next;
    };
    next_ = std::async(std::launch::async, std::move(make));
    next_has_settings_ = true;
  } catch (const std::exception& error) {
    worker_.impl_->give_up("no process can be started: " + std::string(error.what()) +
                           "; WorkerGraph::pardon tries again");
  }
}

void GraphClient::prepare_stand_by() noexcept {
  if (!options_.stand_by || next_.valid()) return;
  try {
    WorkerGraphOptions options = options_;
    options.stand_by = false;
    auto make = [retired = std::move(retired_), description = description_, options,
                 scheduling = scheduling_]() mutable {
      scheduling.apply();  // this thread is started by whoever calls, on whatever processor
      retired.reset();
      return std::make_unique<GraphClient>(description, options, Role::stand_by);
    };
    next_ = std::async(std::launch::async, std::move(make));
  } catch (const std::exception& error) {  // no thread or no memory is to be had
    worker_.impl_->tell(Severity::warning,
                        std::string("the stand-by did not start: ") + error.what());
  }
}

}  // namespace ctxbroker::detail
