// SPDX-License-Identifier: Apache-2.0
// A host as careful ones are: opens a broker, loads three plug-ins in three kinds of leases, runs
// ten jobs, closes. What fails it tries again, and writes down what it was told.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/graph.hpp"

namespace ctxbroker {

class WorkingHost {
 public:
  static constexpr int jobs = 10;

  WorkingHost();
  void work();

  // All that follows is for after work().
  struct Told {
    std::string step;  // "job 3", "activate private"
    ErrorKind kind;
    std::string text;
    bool says_that_cuda_has_ended() const;
  };
  const std::vector<Told>& errors() const noexcept { return errors_; }
  const std::vector<Record>& records() const noexcept { return records_; }
  std::string story() const;  // errors, and records from warnings up, one a line

  int right_jobs() const noexcept { return right_jobs_; }  // ten when all is well
  int wrong_jobs() const noexcept { return wrong_jobs_; }  // reported as done, with another output
  const std::vector<std::string>& left() const noexcept {
    return left_;
  }  // what was not given back
  // Plug-ins, by the kind of their lease, that have had more than one life of a lease.
  const std::set<std::string>& renewed() const noexcept { return renewed_; }

 private:
  struct Plugin {
    const char* library;
    const char* behaviour;
    LeaseKind kind;
    float adds;   // to each sample
    float first;  // the first sample of the output, when it is always the same; else 0
    std::uint64_t generation = 0;
    std::unique_ptr<PluginLibrary> loaded;
    std::unique_ptr<PluginInstance> instance;
  };

  bool attempt(const std::string& step, const std::function<void()>& action);
  void open();
  void use_a_tenant();
  void make_plugin(Plugin& plugin);
  void make_graphs();
  void make_graph(std::size_t index);
  void run_job(int job);
  void check_output(std::size_t graph, const std::vector<float>& in, const std::vector<float>& out);
  void record_generations();
  void end();

  std::vector<Record> records_;
  std::vector<Told> errors_;
  std::optional<Broker> broker_;
  std::vector<Plugin> plugins_;
  std::vector<std::unique_ptr<Graph>> graphs_;  // one for each plug-in, one through all
  std::vector<std::string> left_;
  std::set<std::string> renewed_;
  int right_jobs_ = 0, wrong_jobs_ = 0;
};

}  // namespace ctxbroker
