// SPDX-License-Identifier: Apache-2.0
// host_plugins.h: plug-in libraries, and what is in them.
#include <utility>

#include "plugin/c_host.hpp"

namespace {

using ctxbroker::CudaUse;
using ctxbroker::ParameterDescription;
using ctxbroker::ParameterType;
using ctxbroker::PluginDescription;
using ctxbroker::PortDescription;
using ctxbroker::detail::answered;
using ctxbroker::detail::check_argument;
using ctxbroker::detail::code;
using ctxbroker::detail::element_of;
using ctxbroker::detail::give;
using ctxbroker::detail::list;

const PluginDescription& plugin_of(const ctxb_plugin_library* library, std::uint32_t plugin) {
  check_argument(library != nullptr, "library is null");
  return element_of(library->library.plugins(), plugin, "library " + library->library.name(),
                    "plug-in");
}

static_assert(code(ctxbroker::Media::audio) + CTXB_MEDIA_IMAGE == CTXB_MEDIA_AUDIO);
static_assert(code(CudaUse::driver) + CTXB_CUDA_KERNELS == CTXB_CUDA_DRIVER &&
              code(CudaUse::runtime) + CTXB_CUDA_KERNELS == CTXB_CUDA_RUNTIME);
static_assert(code(ParameterType::floating) == CTXB_PARAMETER_FLOAT &&
              code(ParameterType::integer) == CTXB_PARAMETER_INTEGER &&
              code(ParameterType::boolean) == CTXB_PARAMETER_BOOLEAN &&
              code(ParameterType::choice) == CTXB_PARAMETER_CHOICE &&
              code(ParameterType::colour) == CTXB_PARAMETER_COLOUR &&
              code(ParameterType::point) == CTXB_PARAMETER_POINT &&
              code(ParameterType::string) == CTXB_PARAMETER_STRING &&
              code(ParameterType::file) == CTXB_PARAMETER_FILE);

// Describes a port of one side of a plug-in.
ctxb_status describe_port(const ctxb_plugin_library* library, std::uint32_t plugin,
                          std::uint32_t index,
                          const std::vector<PortDescription> PluginDescription::*side,
                          const char* what, ctxb_port_info* info) noexcept {
  return answered([&] {
    const PluginDescription& owner = plugin_of(library, plugin);
    const PortDescription& port =
        element_of(owner.*side, index, "plug-in " + owner.short_name, what);
    ctxb_port_info whole{};
    whole.flags = (port.optional ? CTXB_PORT_OPTIONAL : 0U) |
                  (port.side_chain ? CTXB_PORT_SIDE_CHAIN : 0U) |
                  (port.result_bytes != 0 ? CTXB_PORT_RESULTS : 0U);
    whole.id = port.id.c_str();
    whole.name = port.name.c_str();
    whole.channels = port.channels;
    whole.samples = port.samples;
    whole.result_bytes = port.result_bytes;
    whole.in_place = static_cast<std::uint32_t>(port.in_place + 1);
    give(info, whole, "info is null, or its size is not sizeof(ctxb_port_info)");
  });
}

}  // namespace

ctxb_status ctxb_plugin_library_load(ctxb_broker* broker, const char* path,
                                     ctxb_plugin_library** library) {
  if (library != nullptr) *library = nullptr;
  return answered(broker != nullptr && path != nullptr && library != nullptr,
                  "broker, path or library is null", [&] {
                    auto made = std::make_unique<ctxb_plugin_library>(
                        ctxb_plugin_library{broker->broker.load(path), {}});
                    for (const PluginDescription& plugin : made->library.plugins()) {
                      ctxb_plugin_library::Lists lists{list(plugin.features), {}, {}};
                      for (const ParameterDescription& one : plugin.parameters) {
                        lists.choices.push_back(list(one.choices));
                        lists.endings.push_back(list(one.endings));
                      }
                      made->lists.push_back(std::move(lists));
                    }
                    *library = made.release();
                  });
}

ctxb_status ctxb_plugin_library_close(ctxb_plugin_library* library) {
  return answered(library != nullptr, "library is null", [&] { delete library; });
}

ctxb_status ctxb_plugin_library_describe(const ctxb_plugin_library* library,
                                         ctxb_library_info* info) {
  return answered(library != nullptr, "library is null", [&] {
    const ctxbroker::PluginLibrary& one = library->library;
    give(info,
         {0, one.tenant().value, one.path().c_str(), one.name().c_str(),
          static_cast<std::uint32_t>(one.plugins().size()), 0},
         "info is null, or its size is not sizeof(ctxb_library_info)");
  });
}

ctxb_plugin_info ctxbroker::detail::described(const PluginDescription& one,
                                              const char* const* features) noexcept {
  ctxb_plugin_info whole{};
  whole.media = code(one.media) + CTXB_MEDIA_IMAGE;
  whole.id = one.id.c_str();
  whole.short_name = one.short_name.c_str();
  whole.name = one.name.c_str();
  whole.vendor = one.vendor.c_str();
  whole.version = one.version.c_str();
  whole.description = one.description.c_str();
  whole.features = features;
  whole.flags = one.flags;
  whole.cuda_use = code(one.cuda_use) + CTXB_CUDA_KERNELS;
  whole.lease = code(one.lease_wish);
  whole.min_compute_major = static_cast<std::uint32_t>(one.min_compute_major);
  whole.min_compute_minor = static_cast<std::uint32_t>(one.min_compute_minor);
  whole.input_count = static_cast<std::uint32_t>(one.inputs.size());
  whole.output_count = static_cast<std::uint32_t>(one.outputs.size());
  whole.parameter_count = static_cast<std::uint32_t>(one.parameters.size());
  return whole;
}

ctxb_status ctxb_plugin_library_plugin(const ctxb_plugin_library* library, uint32_t plugin,
                                       ctxb_plugin_info* info) {
  return answered([&] {
    const PluginDescription& one = plugin_of(library, plugin);
    give(info, ctxbroker::detail::described(one, library->lists[plugin].features.data()),
         "info is null, or its size is not sizeof(ctxb_plugin_info)");
  });
}

ctxb_status ctxb_plugin_library_input(const ctxb_plugin_library* library, uint32_t plugin,
                                      uint32_t input, ctxb_port_info* info) {
  return describe_port(library, plugin, input, &PluginDescription::inputs, "input", info);
}

ctxb_status ctxb_plugin_library_output(const ctxb_plugin_library* library, uint32_t plugin,
                                       uint32_t output, ctxb_port_info* info) {
  return describe_port(library, plugin, output, &PluginDescription::outputs, "output", info);
}

ctxb_status ctxb_plugin_library_parameter(const ctxb_plugin_library* library, uint32_t plugin,
                                          uint32_t parameter, ctxb_parameter_info* info) {
  return answered([&] {
    const PluginDescription& owner = plugin_of(library, plugin);
    const ParameterDescription& one =
        element_of(owner.parameters, parameter, "plug-in " + owner.short_name, "parameter");
    ctxb_parameter_info whole{};
    whole.type = code(one.type);
    whole.id = one.id.c_str();
    whole.name = one.name.c_str();
    whole.unit = one.unit.c_str();
    whole.description = one.description.c_str();
    whole.minimum = one.minimum;
    whole.maximum = one.maximum;
    std::copy(one.default_value.begin(), one.default_value.end(), whole.default_numbers);
    whole.choices = library->lists[plugin].choices[parameter].data();
    whole.flags = (one.automatable ? CTXB_PARAMETER_AUTOMATABLE : 0U) |
                  (one.hidden ? CTXB_PARAMETER_HIDDEN : 0U) |
                  (one.advanced ? CTXB_PARAMETER_ADVANCED : 0U);
    whole.number_count = static_cast<std::uint32_t>(ctxbroker::number_count(one.type));
    whole.skew = one.skew;
    whole.group = one.group.c_str();
    whole.default_text = one.default_text.c_str();
    whole.endings = library->lists[plugin].endings[parameter].data();
    give(info, whole, "info is null, or its size is not sizeof(ctxb_parameter_info)");
  });
}
