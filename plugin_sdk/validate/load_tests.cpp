// SPDX-License-Identifier: Apache-2.0
// Loading a library, and what it says of itself.
#include <dlfcn.h>

#include <utility>

#include "ctxbroker/manifest.hpp"
#include "ctxbroker/plugin.h"
#include "elf_file.hpp"
#include "helpers.hpp"
#include "ladder.hpp"
#include "rig.hpp"

namespace ctxbroker::validate {
namespace {

// The library's tables, which stay as long as the rig.
const ctxb_plugin_entry_type& entry_of(const Rig& rig) {
  void* const handle = dlopen(rig.library().path().c_str(), RTLD_NOW | RTLD_NOLOAD);
  const auto* entry =
      static_cast<const ctxb_plugin_entry_type*>(dlsym(handle, "ctxb_plugin_entry"));
  dlclose(handle);
  return *entry;
}

bool is_mapped(const std::filesystem::path& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

bool all_unloadable(const PluginLibrary& library) {
  for (const PluginDescription& plugin : library.plugins()) {
    if ((plugin.flags & CTXB_PLUGIN_UNLOADABLE) == 0) return false;
  }
  return true;
}

// Why the plug-in cannot run here, through no fault of its own; empty: it can.
std::string why_not(Rig& rig, const PluginDescription& plugin) {
  if (plugin.needs_nvidia_driver && rig.on_software_device()) {
    return "it needs NVIDIA's driver, and this is the software device";
  }
  const DeviceInfo& device = rig.broker().devices().front();
  const auto wanted = std::pair(plugin.min_compute_major, plugin.min_compute_minor);
  if (wanted <= std::pair(device.compute_major, device.compute_minor)) return "";
  return "it needs compute capability " + std::to_string(wanted.first) + "." +
         std::to_string(wanted.second) + ", and the device has " +
         std::to_string(device.compute_major) + "." + std::to_string(device.compute_minor);
}

}  // namespace

// Its notes tell the parent which plug-ins there are.
void load_loads(Trial& trial) {
  Rig rig(trial);
  for (const PluginDescription& plugin : rig.library().plugins()) {
    trial.notes["plugins"].push_back({{"id", plugin.id}, {"why_not", why_not(rig, plugin)}});
  }
  const DriverInfo& driver = rig.broker().driver();
  trial.notes["driver"] = to_string(driver.kind);
  trial.notes["driver_version"] = driver.version;
  trial.notes["device"] = rig.broker().devices().front().name;
}

void load_context(Trial& trial) {
  Rig rig(trial);
  const std::vector<std::string> strikes = rig.strikes();
  if (!strikes.empty()) throw Failed("while it was loaded: " + strikes.front());
}

void load_no_cuda(Trial& trial) {
  Rig rig(trial);
  const std::string calls = calls_between({}, rig.metrics(), [](std::string_view name) {
    return name.find("GetProcAddress") == std::string_view::npos &&
           name.find("GetExportTable") == std::string_view::npos;
  });
  check_that(calls.empty(), "it called the driver while it was loaded: " + calls);
}

void load_answers(Trial& trial) {
  Rig rig(trial);
  const ctxb_plugin_entry_type& entry = entry_of(rig);
  const auto* factory =
      static_cast<const ctxb_plugin_factory*>(entry.get_factory(CTXB_PLUGIN_FACTORY_ID));
  check_that(factory != nullptr && factory == entry.get_factory(CTXB_PLUGIN_FACTORY_ID),
             "get_factory gives another factory when it is asked again");
  check_that(entry.get_factory("org.ctxbroker.no-such-factory/9") == nullptr,
             "get_factory gives a factory for an id that nobody knows");
  const std::uint32_t count = factory->count();
  check_that(count == rig.library().plugins().size(), "count changes when it is asked again");
  for (std::uint32_t i = 0; i < count; ++i) {
    const ctxb_plugin_descriptor* const descriptor = factory->describe(i);
    check_that(
        descriptor == factory->describe(i) && descriptor->id == rig.library().plugins()[i].id,
        "describe gives another descriptor when it is asked again");
  }
  check_that(factory->describe(count) == nullptr && factory->describe(UINT32_MAX) == nullptr,
             "describe gives a descriptor for an index that is none");
  const std::string path = rig.library().path().string();
  for (int i = 0; i < 2; ++i) {
    check_that(entry.init(path.c_str()) == CTXB_OK, "init fails when it is called again");
  }
  for (int i = 0; i < 2; ++i) entry.deinit();
  check_that(factory->count() == count,
             "a deinit ended the library while an init was still in force");
}

void load_again(Trial& trial) {
  Rig rig(trial);
  const std::filesystem::path path = rig.library().path();
  const bool unloadable = all_unloadable(rig.library());
  for (int i = 0; i < 3; ++i) {
    for (const PluginDescription& plugin : rig.library().plugins()) {
      if (!why_not(rig, plugin).empty()) continue;
      try {
        PluginInstance instance = rig.broker().create(rig.library(), plugin.id);
        instance.activate(usual_sizes(plugin));
        instance.deactivate();
      } catch (const Error&) {  // NOLINT(bugprone-empty-catch): life.activate reports it
      }
    }
    rig.end_library();
    check_that(!unloadable || !is_mapped(path),
               "it says that it can be unloaded, and it stays in the process");
    try {
      rig.load_again();
    } catch (const Error& error) {
      throw Failed(std::string("it cannot be loaded a second time: ") + error.what());
    }
  }
}

void load_cuda_libraries(Trial& trial) {
  Rig rig(trial);
  bool kernels_only = true;
  for (const PluginDescription& plugin : rig.library().plugins()) {
    kernels_only = kernels_only && plugin.cuda_use == CudaUse::kernels;
  }
  if (!kernels_only) throw Skipped("its descriptor says that it calls CUDA itself");
  const ElfFile file(trial.file);
  for (const std::string& name : file.needed()) {
    for (const char* cuda : {"libcuda.", "libcudart.", "libcublas", "libcufft", "libcurand",
                             "libcusparse", "libcusolver", "libcudnn", "libnv"}) {
      check_that(name.rfind(cuda, 0) != 0,
                 "it needs " + name +
                     ", but its descriptor says that it uses CUDA through "
                     "the host only (CTXB_CUDA_KERNELS)");
    }
  }
}

void load_manifest(Trial& trial) {
  const ManifestReading reading = read_manifest(trial.file);
  if (!reading.exists) throw Skipped(reading.trouble);
  check_that(reading.trouble.empty(), reading.trouble);
  Rig rig(trial);
  const auto said = nlohmann::json::parse(to_json(reading.manifest));
  const auto should =
      nlohmann::json::parse(to_json({reading.manifest.build_id, rig.library().plugins()}));
  const auto differences = nlohmann::json::diff(said, should);
  if (differences.empty()) return;
  const auto where = differences.front().at("path").get<std::string>();
  const auto value_in = [&](const nlohmann::json& manifest) {
    const nlohmann::json::json_pointer pointer(where);
    return manifest.contains(pointer) ? manifest.at(pointer).dump() : "nothing";
  };
  throw Failed("its manifest has at " + where + " " + value_in(said) +
               ", and its descriptors have " + value_in(should));
}

}  // namespace ctxbroker::validate
