// SPDX-License-Identifier: Apache-2.0
// Sets a graph up in a worker process, at first and after each exit of one.
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "ctxbroker/error.hpp"
#include "worker/graph_client.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {

bool GraphClient::is_set_up() const {
  return set_up_ && worker_.state() == WorkerState::ready && worker_.exits() == exits_;
}

void GraphClient::set_up() {
  if (is_set_up()) return;
  tell_of_lost_jobs();
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
  for (const Node& node : nodes_) {
    if (!discontinuity_ || !node.has_state || node.state) continue;
    worker_.impl_->tell(Severity::info,
                        "plug-in " + node.description.short_name +
                            " starts with the state of a new instance, because its last process "
                            "ended before the state was saved");
  }
  if (dry_jobs_ != 0) {
    worker_.impl_->tell(Severity::info, "it is back; " + std::to_string(dry_jobs_) +
                                            " jobs ran without its plug-ins meanwhile");
    dry_jobs_ = 0;
  }
  if (next_.valid()) return;
  stand_by_fits_ = fits_stand_by();
  prepare_stand_by();
}

bool GraphClient::get_ready() {
  if (is_set_up()) return true;
  if (!options_.dry_while_away) {
    set_up();
    return true;
  }
  tell_of_lost_jobs();
  const WorkerState state = worker_.state();
  // A process that is ready knows nothing of the graph, because another call has failed half-way.
  if (state != WorkerState::missing && state != WorkerState::ready) return false;
  if (!next_is_replacement_) prepare_replacement();
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
  const bool is_replacement = std::exchange(next_is_replacement_, false);
  std::unique_ptr<GraphClient> next;
  try {
    next = next_.get();
  } catch (const std::exception& error) {
    if (is_replacement) throw;
    worker_.impl_->tell(Severity::warning,
                        std::string("the stand-by did not start: ") + error.what());
    return false;
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) check_unchanged(i, next->nodes_[i]);
  const std::uint64_t ends = worker_.exits();
  if (!next->is_set_up() || !next->worker_.impl_->follow(*worker_.impl_, *next->in_charge_)) {
    // It was there, and has ended since. Otherwise a plug-in that ends it at once would do so
    // without end.
    if (is_replacement) worker_.impl_->count_end_of(*next->worker_.impl_);
    return false;
  }
  {
    const std::lock_guard lock(worker_mutex_);
    worker_.impl_.swap(next->worker_.impl_);
  }
  in_charge_.swap(next->in_charge_);
  done_jobs_.swap(next->done_jobs_);
  epoch_ = next->epoch_;
  process_ = next->process_;
  exits_ = ends;
  driver_ = next->driver_;
  devices_ = next->devices_;
  // If it lives, it has failed half-way. It must not write into the blocks of the next process.
  if (!is_replacement && next->worker_.process_id() != 0) next->worker_.close();
  drop_blocks();
  document_ = std::exchange(next->document_, {});
  done_board_ = std::exchange(next->done_board_, {});
  worker_.impl_->take_blocks_of(*next->worker_.impl_);  // from WorkerGraph::lend
  retired_ = std::move(next);
  if (active_ && retired_->settings_ == settings_) {
    bring_up_to_date(*retired_);
  } else {
    if (retired_->active_) exchange(graph_deactivate, Json::object(), {}, States::some);
    restore_all();
  }
  return true;
}

void GraphClient::restore_all() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) restore(i);
  for (const auto& device : lent_devices_->all) give(*device);
  if (active_) send_activation();
}

// The process is activated as `next` was. Since then, the host can have set parameters only.
void GraphClient::bring_up_to_date(GraphClient& next) {
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
  if (next.latency_ != latency_) dry_lines_.swap(next.dry_lines_);  // it has made them for this
  latency_ = next.latency_;
  memory_ = next.memory_;
  take_activation(next.job_inputs_, next.latency_, next.latency_before_);
}

void GraphClient::take_settings(const Settings& settings) {
  if (active_ && settings_ == settings.number) return;
  leave_settings();
  for (std::size_t i = 0; i < nodes_.size(); ++i) check_unchanged(i, settings.nodes[i]);
  nodes_ = settings.nodes;
  description_.inputs = settings.inputs;
  description_.outputs = settings.outputs;
  sizes_ = settings.sizes;
  for (std::size_t i = 0; i < nodes_.size(); ++i) restore(i);
  try {
    send_activation();
  } catch (...) {
    active_ = true;  // as far as this side knows
    throw;
  }
  active_ = true;
  settings_ = settings.number;
}

void GraphClient::leave_settings() {
  settings_ = 0;
  if (active_) exchange(graph_deactivate, Json::object(), {}, States::some);
  active_ = false;
}

// Takes the settings as a stand-by, on a thread of its own. If it cannot be activated now, it is
// activated when it takes over.
void GraphClient::stand_by_with(const std::optional<Settings>& settings) noexcept {
  try {
    if (!settings) {
      const bool was_active = active_;
      leave_settings();
      if (was_active) worker_.impl_->tell(Severity::debug, "it is deactivated, and waits");
      return;
    }
    take_settings(*settings);
    if (memory_ > options_.stand_by_memory) {
      leave_settings();
      throw Error(ErrorKind::over_limit, "it takes " + std::to_string(memory_) +
                                             " bytes of device memory, which is more than "
                                             "WorkerGraphOptions::stand_by_memory");
    }
    worker_.impl_->tell(Severity::debug, "it is activated, and waits");
  } catch (const std::exception& error) {
    worker_.impl_->tell(Severity::warning,
                        std::string("it cannot be activated yet: ") + error.what());
  }
}

// Starts the next process on another thread, unless one waits. It can be activated there, too.
void GraphClient::prepare_next(Purpose purpose) {
  struct Work {
    WorkerGraphDescription description;
    WorkerGraphOptions options;
    std::optional<Settings> settings;
    std::uint64_t number;
    std::unique_ptr<GraphClient> retired{};
    std::future<std::unique_ptr<GraphClient>> waiting{};
  };
  const auto work = std::make_shared<Work>(Work{description_, options_, {}, settings_});
  work->options.stand_by = false;
  if (active_ && (purpose == Purpose::replacement || stand_by_fits_)) {
    work->settings = Settings{nodes_, description_.inputs, description_.outputs, sizes_, settings_};
  }
  *newest_ = settings_;
  auto make = [purpose, work, newest = newest_, scheduling = scheduling_] {
    scheduling.apply();  // this thread is started by whoever calls, on whatever processor
    work->retired.reset();
    std::unique_ptr<GraphClient> next;
    try {
      if (work->waiting.valid()) next = work->waiting.get();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): another one is made
    }
    if (!next || !next->is_set_up()) {
      next = std::make_unique<GraphClient>(work->description, work->options, Role::stand_by);
    }
    if (purpose == Purpose::replacement) {
      if (work->settings) next->take_settings(*work->settings);
    } else if (work->number == *newest) {  // otherwise, another thread waits for this one
      next->stand_by_with(work->settings);
    }
    return next;
  };
  work->retired = std::move(retired_);
  work->waiting = std::move(next_);
  try {
    next_ = std::async(std::launch::async, std::move(make));
  } catch (...) {
    retired_ = std::move(work->retired);
    next_ = std::move(work->waiting);
    throw;
  }
}

// Returns whether an activated stand-by fits into its limit, by the device memory that the process
// reports.
bool GraphClient::fits_stand_by() const {
  if (!active_ || !options_.stand_by || options_.stand_by_memory == 0) return false;
  if (memory_ <= options_.stand_by_memory) return true;
  worker_.impl_->tell(Severity::info, "its stand-by is not activated, because the process holds " +
                                          std::to_string(memory_) +
                                          " bytes of device memory, and "
                                          "WorkerGraphOptions::stand_by_memory is " +
                                          std::to_string(options_.stand_by_memory));
  return false;
}

void GraphClient::prepare_replacement() noexcept {
  try {
    prepare_next(Purpose::replacement);
    next_is_replacement_ = true;
  } catch (const std::exception& error) {  // no thread or no memory is to be had
    worker_.impl_->give_up("no process can be started: " + std::string(error.what()) +
                           "; WorkerGraph::pardon tries again");
  }
}

void GraphClient::prepare_stand_by() noexcept {
  if (!options_.stand_by || next_is_replacement_) return;
  try {
    prepare_next(Purpose::stand_by);
  } catch (const std::exception& error) {
    worker_.impl_->tell(Severity::warning,
                        std::string("the stand-by did not start: ") + error.what());
  }
}

}  // namespace ctxbroker::detail
