// SPDX-License-Identifier: Apache-2.0
#include "working_host.hpp"

#include <numeric>

#include "broker_fixture.hpp"

namespace ctxbroker {

WorkingHost::WorkingHost() {
  plugins_.push_back({"behaviours", "scratch", LeaseKind::shared, 0, 42, 0, {}, {}});
  plugins_.push_back({"behaviours_twin", "bias", LeaseKind::private_own, 100, 0, 0, {}, {}});
  plugins_.push_back({"behaviours_third", "affine", LeaseKind::green, 0, 0, 0, {}, {}});
  graphs_.resize(plugins_.size() + 1);
}

std::string WorkingHost::story() const {
  std::string story;
  for (const Told& told : errors_) {
    story += "  " + told.step + ": " + to_string(told.kind) + ": " + told.text + "\n";
  }
  for (const Record& record : records_) {
    if (record.severity < Severity::warning) continue;
    story += std::string("  ") + to_string(record.severity) + " [" + record.tenant_name + ", " +
             record.topic + "] " + record.text + "\n";
  }
  return story;
}

bool WorkingHost::Told::says_that_cuda_has_ended() const {
  return kind == ErrorKind::context_lost &&
         text.find("CUDA has ended in this process") != std::string::npos;
}

bool WorkingHost::attempt(const std::string& step, const std::function<void()>& action) {
  for (int attempts = 0; attempts < 3; ++attempts) {
    try {
      action();
      return true;
    } catch (const Error& error) {
      errors_.push_back({step, error.kind(), error.what()});
      if (errors_.back().says_that_cuda_has_ended()) return false;
    }
  }
  return false;
}

void WorkingHost::open() {
  BrokerOptions options;
  options.host_name = "working host";
  options.records = [this](const Record& record) { records_.push_back(record); };
  broker_.emplace(Broker::open(options));
}

// What hosts with a format of their own do.
void WorkingHost::use_a_tenant() {
  attempt("tenant", [&] {
    Tenant tenant = broker_->open_tenant("tenant", {LeaseChoice(LeaseKind::green)});
    const std::uint64_t kept = tenant.allocate(1 << 20), given_back = tenant.allocate(4096);
    static_cast<void>(tenant.create_stream());
    {
      const Guard guard(tenant);
      const Guard nested(tenant);
    }
    tenant.release(given_back);
    if (kept == 0) left_.push_back("an allocation at address 0");
    tenant.close();
  });
}

void WorkingHost::make_plugin(Plugin& plugin) {
  const std::string name = to_string(plugin.kind);
  const auto make = [&] {
    if (plugin.loaded == nullptr) {
      plugin.loaded = std::make_unique<PluginLibrary>(broker_->load(test_plugin(plugin.library)));
    }
    if (plugin.instance == nullptr) {
      InstanceOptions options;
      options.device = Placement(0);
      options.lease = LeaseChoice(plugin.kind);
      options.job_graphs = plugin.kind != LeaseKind::private_own;
      plugin.instance = std::make_unique<PluginInstance>(
          broker_->create(*plugin.loaded, plugin.behaviour, options));
    }
    if (!plugin.instance->active()) plugin.instance->activate(test_sizes);
    plugin.generation = plugin.instance->lease().generation;
  };
  attempt("make " + name, make);
}

void WorkingHost::make_graph(std::size_t index) {
  std::vector<PluginInstance*> stages;
  for (std::size_t i = 0; i < plugins_.size(); ++i) {
    if (index != plugins_.size() && index != i) continue;
    if (plugins_[i].instance == nullptr) return;
    if (!plugins_[i].instance->active()) plugins_[i].instance->activate(test_sizes);
    stages.push_back(plugins_[i].instance.get());
  }
  graphs_[index] = std::make_unique<Graph>(*broker_, stages, test_sizes);
}

void WorkingHost::make_graphs() {
  for (std::size_t index = 0; index < graphs_.size(); ++index) {
    attempt("graph " + std::to_string(index), [&] { make_graph(index); });
  }
}

void WorkingHost::check_output(std::size_t graph, const std::vector<float>& in,
                               const std::vector<float>& out) {
  std::vector<float> expected = in;
  for (std::size_t i = 0; i < plugins_.size(); ++i) {
    if (graph != plugins_.size() && graph != i) continue;
    for (float& value : expected) value += plugins_[i].adds;
    if (plugins_[i].first != 0) expected[0] = plugins_[i].first;
  }
  ++(out == expected ? right_jobs_ : wrong_jobs_);
}

void WorkingHost::run_job(int job) {
  const std::size_t index = static_cast<std::size_t>(job) % graphs_.size();
  std::vector<float> input(8 * 4 * 4), output(input.size(), -1.0F);
  std::iota(input.begin(), input.end(), static_cast<float>(job));
  JobInfo info;
  info.width = 8;
  info.height = 4;
  int attempts = 0;
  attempt("job " + std::to_string(job), [&] {
    // A graph can be used again after a failure; at last another one must do.
    if (graphs_[index] == nullptr || ++attempts == 3) make_graph(index);
    if (graphs_[index] == nullptr) return;
    graphs_[index]->process(input.data(), output.data(), info);
    check_output(index, input, output);
  });
  broker_->poll();
}

void WorkingHost::record_generations() {
  for (const Plugin& plugin : plugins_) {
    if (plugin.instance != nullptr && plugin.generation != 0 &&
        plugin.instance->lease().generation != plugin.generation) {
      renewed_.insert(to_string(plugin.kind));
    }
  }
}

void WorkingHost::end() {
  for (auto& graph : graphs_) graph.reset();
  for (Plugin& plugin : plugins_) {
    if (plugin.instance != nullptr) {
      plugin.instance->deactivate();
      if (plugin.instance->metrics().memory_bytes != 0) left_.push_back("memory in a ledger");
    }
    plugin.instance.reset();
    plugin.loaded.reset();
  }
  attempt("poll", [&] { broker_->poll(); });  // it tries again what the driver refused to free
  // Every stream, event, module and allocation keeps its lease.
  if (!broker_->leases().empty()) left_.push_back("something of a lease");
  attempt("close", [&] { broker_->close(); });
  if (broker_->has_driver()) left_.push_back("an open broker");
}

void WorkingHost::work() {
  if (!attempt("open", [&] { open(); })) return;
  use_a_tenant();
  for (Plugin& plugin : plugins_) make_plugin(plugin);
  make_graphs();
  for (int job = 0; job < jobs; ++job) run_job(job);
  record_generations();
  end();
}

}  // namespace ctxbroker
