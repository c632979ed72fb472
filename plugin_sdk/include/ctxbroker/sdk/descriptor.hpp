// A plug-in's description as a compile-time constant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ctxbroker/plugin.h"

namespace ctxbroker::sdk {

// Start with image() or audio() and add what applies. Everything handed in has static storage.
class Descriptor {
 public:
  // `id` is in reverse DNS and for ever: "com.example.exposure". `version` is "1.2.3".
  static constexpr Descriptor image(const char* id, const char* name, const char* version) {
    return Descriptor(CTXB_MEDIA_IMAGE, id, name, version);
  }
  static constexpr Descriptor audio(const char* id, const char* name, const char* version) {
    return Descriptor(CTXB_MEDIA_AUDIO, id, name, version);
  }

  constexpr Descriptor vendor(const char* text) const {
    Descriptor copy = *this;
    copy.raw_.vendor = text;
    return copy;
  }

  // One sentence.
  constexpr Descriptor description(const char* text) const {
    Descriptor copy = *this;
    copy.raw_.description = text;
    return copy;
  }

  // Words to find it by, ending with a null pointer.
  constexpr Descriptor features(const char* const* words) const {
    Descriptor copy = *this;
    copy.raw_.features = words;
    return copy;
  }

  // What parameter_table made.
  template <std::size_t Count>
  constexpr Descriptor parameters(const std::array<ctxb_parameter, Count>& table) const {
    Descriptor copy = *this;
    copy.raw_.parameters = table.data();
    copy.raw_.parameter_count = static_cast<std::uint32_t>(Count);
    return copy;
  }
  template <std::size_t Count>
  constexpr Descriptor parameters(const std::array<ctxb_parameter, Count>&& temporary) const =
      delete;

  // The `modules` of the header that ctxb_add_plugin generates.
  template <std::size_t Count>
  constexpr Descriptor modules(const ctxb_module (&all)[Count]) const {
    Descriptor copy = *this;
    copy.raw_.modules = all;
    copy.raw_.module_count = static_cast<std::uint32_t>(Count);
    return copy;
  }

  // CTXB_PLUGIN_*, or-ed.
  constexpr Descriptor flags(std::uint32_t bits) const {
    Descriptor copy = *this;
    copy.raw_.flags = bits;
    return copy;
  }

  // CTXB_CUDA_*; kernels unless said otherwise.
  constexpr Descriptor cuda_use(std::uint32_t use) const {
    Descriptor copy = *this;
    copy.raw_.cuda_use = use;
    return copy;
  }

  // CTXB_LEASE_*; the host's choice unless said otherwise.
  constexpr Descriptor lease(std::uint32_t wish) const {
    Descriptor copy = *this;
    copy.raw_.lease = wish;
    return copy;
  }

  // CTXB_CONCURRENCY_*; one thread per instance unless said otherwise.
  constexpr Descriptor concurrency(std::uint32_t kind) const {
    Descriptor copy = *this;
    copy.raw_.concurrency = kind;
    return copy;
  }

  constexpr Descriptor least_compute_capability(std::uint32_t major, std::uint32_t minor) const {
    Descriptor copy = *this;
    copy.raw_.min_compute_major = major;
    copy.raw_.min_compute_minor = minor;
    return copy;
  }

  constexpr const ctxb_plugin_descriptor& raw() const { return raw_; }

 private:
  constexpr Descriptor(std::uint32_t media, const char* id, const char* name, const char* version)
      : raw_{} {
    raw_.size = sizeof(ctxb_plugin_descriptor);
    raw_.media = media;
    raw_.id = id;
    raw_.name = name;
    raw_.vendor = "";
    raw_.version = version;
    raw_.description = "";
    raw_.cuda_use = CTXB_CUDA_KERNELS;
    raw_.lease = CTXB_LEASE_AUTO;
    raw_.concurrency = CTXB_CONCURRENCY_INSTANCES;
  }

  ctxb_plugin_descriptor raw_;
};

}  // namespace ctxbroker::sdk
