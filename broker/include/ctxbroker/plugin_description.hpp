// A plug-in's descriptor as the host reads it: checked copies, valid after the library is gone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/export.hpp"
#include "ctxbroker/lease.hpp"

namespace ctxbroker {

enum class Media { image, audio };
enum class CudaUse { kernels, driver, runtime };
enum class ParameterType { floating, integer, boolean, choice };

CTXB_API const char* to_string(Media media) noexcept;
CTXB_API const char* to_string(CudaUse use) noexcept;
CTXB_API const char* to_string(ParameterType type) noexcept;

struct CTXB_API ParameterDescription {
  std::string id, name, unit, description;
  ParameterType type = ParameterType::floating;
  double minimum = 0, maximum = 0, default_value = 0;
  std::vector<std::string> choices;  // for ParameterType::choice
  bool automatable = false;

  // Reads a value as a person writes it: a number, "true"/"on"/..., a choice's name. Throws Error:
  // parameter_value with the allowed range when it is none or out of range.
  double parse(std::string_view text) const;
  // Throws like parse when `value` is not finite, out of range, or not whole where it must be.
  void check(double value) const;
};

struct CTXB_API PluginDescription {
  std::string id, name, vendor, version, description;
  std::string short_name;  // the id's last part: "exposure"
  std::vector<std::string> features;
  Media media = Media::image;
  CudaUse cuda_use = CudaUse::kernels;
  LeaseKind lease_wish = LeaseKind::automatic;
  std::uint32_t flags = 0;           // CTXB_PLUGIN_*
  bool needs_nvidia_driver = false;  // cannot work on the software device; create refuses it there
  int min_compute_major = 0, min_compute_minor = 0;
  std::vector<ParameterDescription> parameters;
  std::vector<std::string> modules;
  std::string library_path;

  // Index of a parameter; throws Error: unknown_parameter, listing the ones there are.
  std::size_t parameter_index(std::string_view parameter_id) const;
};

}  // namespace ctxbroker
