// SPDX-License-Identifier: Apache-2.0
#include "layer.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "ctxbroker/plugin.h"
#include "lent_job.hpp"

namespace ctxbroker::validate {
namespace {

struct Layer {
  std::mutex mutex;
  Plan plan;
  Seen seen;
  // The table that create returned, as it was, and how often it was returned and not yet destroyed.
  struct Original {
    ctxb_plugin table{};
    int users = 0;
  };
  std::map<const ctxb_plugin*, Original> originals;
  std::set<const ctxb_plugin*> lost;  // told of a loss, and not active again
  std::map<const ctxb_plugin_factory*, ctxb_plugin_factory> factories;
  const void* (*get_host_extension)(const ctxb_host*, const char*) = nullptr;
};
Layer& layer() {
  static Layer the_layer;
  return the_layer;
}

// The plug-in's function that runs on this thread.
enum class Inside { nothing, activate, process, context_lost, deactivate_lost };
thread_local Inside inside = Inside::nothing;

class Entered {
 public:
  explicit Entered(Inside function) : before_(inside) { inside = function; }
  ~Entered() { inside = before_; }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Inside before_;
};

ctxb_plugin original(const ctxb_plugin* plugin) {
  const std::lock_guard lock(layer().mutex);
  return layer().originals.at(plugin).table;
}

void find_mishap(Mishap mishap, std::string text) {
  const std::lock_guard lock(layer().mutex);
  if (layer().seen.findings.size() < 100) {
    layer().seen.findings.push_back({mishap, std::move(text)});
  }
}

// ---- The host's functions -------------------------------------------------------------------

// Answers for the host, if the plan says so.
std::optional<ctxb_status> injected(const char* function) {
  if (std::strcmp(function, "allocate") != 0) return std::nullopt;
  const std::lock_guard lock(layer().mutex);
  ++layer().seen.allocations;
  if (layer().plan.failing_allocation == 0 || --layer().plan.failing_allocation != 0) {
    return std::nullopt;
  }
  return CTXB_ERROR_OUT_OF_DEVICE_MEMORY;
}

void look_at(const char* function, ctxb_status status) {
  if (inside == Inside::context_lost) {
    find_mishap(Mishap::called, std::string(function) + " in context_lost");
  } else if (inside == Inside::deactivate_lost && status < 0) {  // release(0) does nothing
    find_mishap(Mishap::called,
                std::string(function) + ", with what is dead, in the deactivate " + "after a loss");
  } else if (inside == Inside::process && status < 0) {
    find_mishap(Mishap::refused,
                std::string(function) + " answered " + std::to_string(status) + " in process");
  }
}

// Stands for one function of a table that the host gave.
template <auto member>
struct Forward;
template <typename Table, typename... Parameters,
          ctxb_status (*Table::*member)(const ctxb_host*, Parameters...)>
struct Forward<member> {
  static inline const Table* real = nullptr;
  static inline const char* name = "";
  static ctxb_status call(const ctxb_host* host, Parameters... parameters) {
    const Unwatched unwatched;
    if (const auto answer = injected(name)) return *answer;
    const ctxb_status status = (real->*member)(host, parameters...);
    look_at(name, status);
    return status;
  }
  static void stand_in(Table& table, const Table* its_real, const char* its_name) {
    real = its_real;
    name = its_name;
    table.*member = call;
  }
};

const void* gpu_table(const void* given) {
  static ctxb_gpu_extension table = [given] {
    using Gpu = ctxb_gpu_extension;
    const auto* real = static_cast<const Gpu*>(given);
    Gpu made = *real;
    Forward<&Gpu::get_kernel>::stand_in(made, real, "get_kernel");
    Forward<&Gpu::get_global>::stand_in(made, real, "get_global");
    Forward<&Gpu::allocate>::stand_in(made, real, "allocate");
    Forward<&Gpu::release>::stand_in(made, real, "release");
    Forward<&Gpu::launch>::stand_in(made, real, "launch");
    Forward<&Gpu::upload>::stand_in(made, real, "upload");
    Forward<&Gpu::clear>::stand_in(made, real, "clear");
    Forward<&Gpu::copy>::stand_in(made, real, "copy");
    return made;
  }();
  return &table;
}

const void* launch_table(const void* given) {
  static ctxb_launch_extension table = [given] {
    using Launch = ctxb_launch_extension;
    const auto* real = static_cast<const Launch*>(given);
    Launch made = *real;
    Forward<&Launch::launch>::stand_in(made, real, "launch (ctxbroker.launch/1)");
    return made;
  }();
  return &table;
}

const void* get_host_extension(const ctxb_host* host, const char* id) {
  const void* const given = layer().get_host_extension(host, id);
  if (given == nullptr || id == nullptr) return given;
  if (std::strcmp(id, CTXB_EXT_GPU) == 0) return gpu_table(given);
  if (std::strcmp(id, CTXB_EXT_LAUNCH) == 0) return launch_table(given);
  return given;
}

// ---- The plug-in's functions ----------------------------------------------------------------

ctxb_status activate(const ctxb_plugin* plugin, const ctxb_activation* activation) {
  const Entered entered(Inside::activate);
  return original(plugin).activate(plugin, activation);
}

void context_lost(const ctxb_plugin* plugin, const ctxb_loss* loss) {
  {
    const std::lock_guard lock(layer().mutex);
    ++layer().seen.losses;
    layer().lost.insert(plugin);
  }
  const Entered entered(Inside::context_lost);
  original(plugin).context_lost(plugin, loss);
}

void deactivate(const ctxb_plugin* plugin) {
  bool was_lost = false;
  {
    const std::lock_guard lock(layer().mutex);
    was_lost = layer().lost.erase(plugin) != 0;
  }
  const Entered entered(was_lost ? Inside::deactivate_lost : Inside::nothing);
  original(plugin).deactivate(plugin);
}

void destroy(const ctxb_plugin* plugin) {
  const ctxb_plugin real = original(plugin);
  {
    const std::lock_guard lock(layer().mutex);
    if (--layer().originals.at(plugin).users == 0) {
      const_cast<ctxb_plugin&>(*plugin) = real;
      layer().originals.erase(plugin);
    }
  }
  real.destroy(plugin);
}

ctxb_status call_process(const ctxb_plugin& real, const ctxb_plugin* plugin, const ctxb_job& job) {
  const Entered entered(Inside::process);
  Watched count;
  ctxb_status status = CTXB_ERROR;
  {
    const Watch watch;
    status = real.process(plugin, &job);
    count = watch.count();
  }
  const std::lock_guard lock(layer().mutex);
  Seen& seen = layer().seen;
  ++seen.jobs;
  if (status == CTXB_OK) ++seen.answered;
  if (status == CTXB_BYPASS) ++seen.bypassed;
  seen.process.allocations += count.allocations;
  seen.process.locks += count.locks;
  seen.process.waits += count.waits;
  return status;
}

ctxb_status process(const ctxb_plugin* plugin, const ctxb_job* job) {
  const ctxb_plugin real = original(plugin);
  Plan plan;
  {
    const std::lock_guard lock(layer().mutex);
    plan = layer().plan;
  }
  if (!plan.lends) return call_process(real, plugin, *job);
  std::optional<LentJob> lent;
  try {
    lent.emplace(*job, plan);
  } catch (const std::exception& error) {
    find_mishap(Mishap::internal, error.what());
    return CTXB_ERROR;
  }
  const ctxb_status status = call_process(real, plugin, lent->job());
  std::vector<Finding> findings;
  try {
    lent->finish(status == CTXB_OK, findings);
  } catch (const std::exception& error) {
    find_mishap(Mishap::internal, error.what());
  }
  for (Finding& finding : findings) find_mishap(finding.mishap, std::move(finding.text));
  return status;
}

// Static data of the library may be in pages that nobody can write to.
template <typename Struct>
Struct& writable(const Struct* fixed) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(fixed) & ~(page - 1);
  const auto end = reinterpret_cast<std::uintptr_t>(fixed) + sizeof(Struct);
  if (::mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE) != 0) {
    throw std::runtime_error("the plug-in's tables cannot be replaced");
  }
  return *const_cast<Struct*>(fixed);
}

bool is_valid(const ctxb_plugin* made) {
  return made != nullptr && made->size >= sizeof(ctxb_plugin) && made->activate != nullptr &&
         made->process != nullptr && made->deactivate != nullptr && made->destroy != nullptr &&
         made->context_lost != nullptr && made->get_extension != nullptr;
}

const ctxb_plugin* create_with(const ctxb_plugin_factory& factory, std::uint32_t index,
                               const ctxb_host* host) {
  auto& its_host = const_cast<ctxb_host&>(*host);
  if (its_host.get_extension != get_host_extension) {
    layer().get_host_extension = its_host.get_extension;
    its_host.get_extension = get_host_extension;
  }
  const ctxb_plugin* const made = factory.create(index, host);
  if (!is_valid(made)) return made;
  const std::lock_guard lock(layer().mutex);
  Layer::Original& kept = layer().originals[made];
  if (kept.users++ > 0) return made;  // one object for several instances
  kept.table = *made;
  ctxb_plugin& table = writable(made);
  table.activate = activate;
  table.process = process;
  table.deactivate = deactivate;
  table.destroy = destroy;
  table.context_lost = context_lost;
  return made;
}

// The broker has one of the validator's libraries at a time, so one create is enough.
const ctxb_plugin_factory* attached = nullptr;
const ctxb_plugin* create(std::uint32_t index, const ctxb_host* host) {
  return create_with(layer().factories.at(attached), index, host);
}

}  // namespace

void attach(const std::filesystem::path& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) throw std::runtime_error(library.string() + " is not loaded");
  const auto* entry =
      static_cast<const ctxb_plugin_entry_type*>(dlsym(handle, "ctxb_plugin_entry"));
  dlclose(handle);
  if (entry == nullptr) throw std::runtime_error(library.string() + " has no ctxb_plugin_entry");
  const auto* factory =
      static_cast<const ctxb_plugin_factory*>(entry->get_factory(CTXB_PLUGIN_FACTORY_ID));
  if (factory->create == create) return;
  layer().factories[factory] = *factory;
  attached = factory;
  writable(factory).create = create;
}

void set_plan(const Plan& plan) {
  const std::lock_guard lock(layer().mutex);
  layer().plan = plan;
}

Seen take_seen() {
  const std::lock_guard lock(layer().mutex);
  return std::exchange(layer().seen, {});
}

std::string first_of(const Seen& seen, Mishap mishap) {
  for (const Finding& finding : seen.findings) {
    if (finding.mishap == mishap) return finding.text;
  }
  return "";
}

}  // namespace ctxbroker::validate
