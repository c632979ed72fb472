// SPDX-License-Identifier: Apache-2.0
#include "bare_host.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "support/driver_by_name.hpp"

namespace ctxbroker::test {
namespace {

void must_succeed(ctxb_status status, const char* function) {
  if (status < 0) {
    throw std::runtime_error(std::string(function) + " returned " + std::to_string(status));
  }
}

const ctxb_host& callbacks() {
  static const ctxb_host host{
      sizeof(ctxb_host),
      CTXB_ABI_MAJOR,
      CTXB_ABI_MINOR,
      "bare host",
      "1",
      [](const ctxb_host*, const char*) -> const void* { return nullptr; },
      [](const ctxb_host*, std::uint32_t, const char* text) { std::printf("LOG: %s\n", text); },
      [](const ctxb_host*, ctxb_status status, std::int32_t, const char* text) {
        std::printf("FAILED: %s\n", text);
        return status;
      },
      [](const ctxb_host*) {},
      [](const ctxb_host*) {}};
  return host;
}

std::vector<ctxb_value> defaults(const ctxb_plugin_descriptor& descriptor) {
  std::vector<ctxb_value> values;
  for (std::uint32_t i = 0; i < descriptor.parameter_count; ++i) {
    const ctxb_parameter& one = descriptor.parameters[i];
    const double* const first = one.default_numbers;
    values.push_back({sizeof(ctxb_value),
                      one.type,
                      {first[0], first[1], first[2], first[3]},
                      one.default_text != nullptr ? one.default_text : ""});
  }
  return values;
}

// The only plug-ins loaded here have a table of their own; it is found by instance.
std::vector<std::pair<const ctxb_plugin*, std::vector<ctxb_value>>>& snapshots() {
  static std::vector<std::pair<const ctxb_plugin*, std::vector<ctxb_value>>> all;
  return all;
}

}  // namespace

BareHost::BareHost(std::uint32_t width, std::uint32_t height) : width_(width), height_(height) {
  CUcontext primary = nullptr;
  check_driver_call("cuInit", 0U);
  check_driver_call("cuDevicePrimaryCtxRetain", &primary, 0);
  check_driver_call("cuCtxSetCurrent", primary);
  check_driver_call("cuStreamCreate", &stream_, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  check_driver_call("cuMemAlloc_v2", &in_, std::size_t{16} * width * height);
  check_driver_call("cuMemAlloc_v2", &out_, std::size_t{16} * width * height);
}

const ctxb_plugin& BareHost::load(const std::filesystem::path& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error(dlerror());
  const auto* entry =
      static_cast<const ctxb_plugin_entry_type*>(dlsym(handle, "ctxb_plugin_entry"));
  must_succeed(entry->init(library.c_str()), "init");
  const auto* factory =
      static_cast<const ctxb_plugin_factory*>(entry->get_factory(CTXB_PLUGIN_FACTORY_ID));
  const ctxb_plugin* plugin = factory->create(0, &callbacks());
  if (plugin == nullptr) throw std::runtime_error("create returned null");
  snapshots().emplace_back(plugin, defaults(*factory->describe(0)));
  ctxb_activation activation{};
  activation.size = sizeof activation;
  activation.generation = 1;
  activation.max_width = width_;
  activation.max_height = height_;
  activation.stream = stream_;
  activation.parameters = snapshots().back().second.data();
  activation.parameter_count = static_cast<std::uint32_t>(snapshots().back().second.size());
  must_succeed(plugin->activate(plugin, &activation), "activate");
  return *plugin;
}

std::vector<float> BareHost::process(const ctxb_plugin& plugin, const std::vector<float>& pixels) {
  std::vector<float> result(pixels.size());
  const std::size_t bytes = pixels.size() * sizeof(float);
  check_driver_call("cuMemcpyHtoD_v2", in_, static_cast<const void*>(pixels.data()), bytes);
  const ctxb_buffer in = buffer(in_), out = buffer(out_);
  ctxb_job job{};
  job.size = sizeof job;
  job.stream = stream_;
  job.inputs = &in;
  job.outputs = &out;
  job.input_count = job.output_count = 1;
  for (const auto& [one, values] : snapshots()) {
    if (one != &plugin) continue;
    job.parameters = values.data();
    job.parameter_count = static_cast<std::uint32_t>(values.size());
  }
  must_succeed(plugin.process(&plugin, &job), "process");
  check_driver_call("cuStreamSynchronize", stream_);
  check_driver_call("cuMemcpyDtoH_v2", static_cast<void*>(result.data()), out_, bytes);
  return result;
}

ctxb_buffer BareHost::buffer(CUdeviceptr data) const {
  ctxb_buffer made{};
  made.size = sizeof made;
  made.media = CTXB_MEDIA_IMAGE;
  made.data = data;
  made.row_pitch = std::uint64_t{16} * width_;
  made.width = width_;
  made.height = height_;
  made.channels = 4;
  made.samples = CTXB_SAMPLE_FLOAT;
  made.extent = {0, 0, width_, height_};
  return made;
}

}  // namespace ctxbroker::test
