// SPDX-License-Identifier: Apache-2.0
/// @file
/// Internal to the SDK: the C functions between the host and a plug-in's class. No exception passes
/// them.
#pragma once

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <type_traits>

#include "ctxbroker/plugin.h"
#include "ctxbroker/sdk/failure.hpp"
#include "ctxbroker/sdk/local.hpp"
#include "ctxbroker/sdk/plugin_base.hpp"

namespace ctxbroker::sdk::detail {

// Runs `body`, which returns a status. Turns an exception into a status and tells the host why.
template <class Body>
ctxb_status guarded(const ctxb_host* host, Body&& body) noexcept {
  try {
    return body();
  } catch (const Failure& failure) {
    const ctxb_status status = failure.status() < 0 ? failure.status() : CTXB_ERROR;
    return host->fail(host, status, failure.driver_status(), failure.what());
  } catch (const std::bad_alloc&) {
    return host->fail(host, CTXB_ERROR_OUT_OF_HOST_MEMORY, 0, "out of host memory");
  } catch (const std::exception& exception) {
    return host->fail(host, CTXB_ERROR, 0, exception.what());
  } catch (...) {
    return host->fail(host, CTXB_ERROR, 0,
                      "the plug-in threw an object that is not a std::exception");
  }
}

// Does the same for functions that return nothing. The exception goes to the host's log.
template <class Body>
void guarded_void(const ctxb_host* host, Body&& body) noexcept {
  try {
    body();
  } catch (const std::exception& exception) {
    host->log(host, CTXB_LOG_ERROR, exception.what());
  } catch (...) {
    host->log(host, CTXB_LOG_ERROR, "the plug-in threw an object that is not a std::exception");
  }
}

template <class Derived>
struct CTXB_SDK_LOCAL Thunks {
  static_assert(std::is_base_of_v<Plugin, Derived>, "derive from ctxbroker::sdk::Plugin");
  static_assert(std::is_constructible_v<Derived, Host>, "write `using Plugin::Plugin;`");

  static const ctxb_plugin* create(const ctxb_host* host) noexcept {
    const ctxb_plugin* made = nullptr;
    guarded(host, [&]() -> ctxb_status {
      auto instance = std::make_unique<Derived>(Host(host));
      Plugin& base = *instance;
      base.raw_ = {sizeof(ctxb_plugin), &base,   activate,     process,
                   deactivate,          destroy, context_lost, get_extension};
      made = &base.raw_;
      static_cast<void>(instance.release());
      return CTXB_OK;
    });
    return made;
  }

 private:
  static Plugin& base_of(const ctxb_plugin* plugin) noexcept {
    return *static_cast<Plugin*>(plugin->data);
  }
  static Derived& self(const ctxb_plugin* plugin) noexcept {
    return static_cast<Derived&>(base_of(plugin));
  }
  static const ctxb_host* host_of(const ctxb_plugin* plugin) noexcept {
    return base_of(plugin).host_.raw();
  }

  static ctxb_status activate(const ctxb_plugin* plugin, const ctxb_activation* activation) {
    return guarded(host_of(plugin), [&]() -> ctxb_status {
      Plugin& base = base_of(plugin);
      try {
        // A plug-in that calls CUDA itself may have kernels too.
        static const bool has_kernels = Derived::descriptor.raw().cuda_use == CTXB_CUDA_KERNELS ||
                                        Derived::descriptor.raw().module_count != 0;
        base.gpu_.open(has_kernels);
        base.activate(Activation(base.gpu_, *activation));
      } catch (...) {
        base.gpu_.release_all();
        throw;
      }
      return CTXB_OK;
    });
  }

  static ctxb_status process(const ctxb_plugin* plugin, const ctxb_job* job) {
    return guarded(host_of(plugin), [&] {
      Plugin& base = base_of(plugin);
      return static_cast<ctxb_status>(base.process(Job(base.gpu_, *job)));
    });
  }

  static void deactivate(const ctxb_plugin* plugin) {
    guarded_void(host_of(plugin), [&] { base_of(plugin).deactivate(); });
    base_of(plugin).gpu_.release_all();
  }

  static void destroy(const ctxb_plugin* plugin) {
    const ctxb_host* host = host_of(plugin);
    guarded_void(host, [&] { delete &self(plugin); });
  }

  static void context_lost(const ctxb_plugin* plugin, const ctxb_loss* loss) {
    base_of(plugin).gpu_.forget_all();
    guarded_void(host_of(plugin), [&] { base_of(plugin).context_lost(Loss(*loss)); });
  }

  static const void* get_extension(const ctxb_plugin*, const char* id) {
    if constexpr (std::is_base_of_v<Stateful, Derived>) {
      static constexpr ctxb_state_extension state{sizeof(ctxb_state_extension), save, load};
      if (std::strcmp(id, CTXB_EXT_STATE) == 0) {
        return &state;
      }
    }
    if constexpr (std::is_base_of_v<Latent, Derived>) {
      static constexpr ctxb_latency_extension late{sizeof(ctxb_latency_extension), latency, tail};
      if (std::strcmp(id, CTXB_EXT_LATENCY) == 0) {
        return &late;
      }
    }
    if constexpr (std::is_base_of_v<ParameterText, Derived>) {
      static constexpr ctxb_parameter_text_extension words{sizeof(ctxb_parameter_text_extension),
                                                           to_text, from_text};
      if (std::strcmp(id, CTXB_EXT_PARAMETER_TEXT) == 0) {
        return &words;
      }
    }
    if constexpr (std::is_base_of_v<Temporal, Derived>) {
      static constexpr ctxb_frames_extension frames{sizeof(ctxb_frames_extension), get_frames};
      if (std::strcmp(id, CTXB_EXT_FRAMES) == 0) {
        return &frames;
      }
    }
    if constexpr (std::is_base_of_v<Regional, Derived>) {
      static constexpr ctxb_regions_extension regions{sizeof(ctxb_regions_extension), get_extent,
                                                      get_region};
      if (std::strcmp(id, CTXB_EXT_REGIONS) == 0) {
        return &regions;
      }
    }
    if constexpr (std::is_base_of_v<Callback, Derived>) {
      static constexpr ctxb_callback_extension callback{sizeof(ctxb_callback_extension),
                                                        on_main_thread};
      if (std::strcmp(id, CTXB_EXT_CALLBACK) == 0) {
        return &callback;
      }
    }
    static_cast<void>(id);
    return nullptr;
  }

  static ctxb_status save(const ctxb_plugin* plugin, const ctxb_output_stream* stream) {
    return guarded(host_of(plugin), [&]() -> ctxb_status {
      StateWriter writer(*stream);
      static_cast<const Stateful&>(self(plugin)).save(writer);
      return CTXB_OK;
    });
  }
  static ctxb_status load(const ctxb_plugin* plugin, const ctxb_input_stream* stream) {
    return guarded(host_of(plugin), [&]() -> ctxb_status {
      StateReader reader(*stream);
      static_cast<Stateful&>(self(plugin)).load(reader);
      return CTXB_OK;
    });
  }
  static std::uint64_t latency(const ctxb_plugin* plugin) {
    std::uint64_t frames = 0;
    guarded_void(host_of(plugin),
                 [&] { frames = static_cast<const Latent&>(self(plugin)).latency(); });
    return frames;
  }
  static std::uint64_t tail(const ctxb_plugin* plugin) {
    std::uint64_t frames = 0;
    guarded_void(host_of(plugin),
                 [&] { frames = static_cast<const Latent&>(self(plugin)).tail(); });
    return frames;
  }
  // A text that does not fit is left to the host, as none is.
  static ctxb_status to_text(const ctxb_plugin* plugin, std::uint32_t parameter,
                             const ctxb_value* value, char* text, std::uint64_t bytes) {
    return guarded(host_of(plugin), [&]() -> ctxb_status {
      const std::string written =
          static_cast<const ParameterText&>(self(plugin)).to_text(parameter, *value);
      if (written.empty() || written.size() >= bytes) {
        return CTXB_ERROR_UNSUPPORTED;
      }
      std::memcpy(text, written.c_str(), written.size() + 1);
      return CTXB_OK;
    });
  }
  static ctxb_status from_text(const ctxb_plugin* plugin, std::uint32_t parameter, const char* text,
                               ctxb_value* value) {
    return guarded(host_of(plugin), [&]() -> ctxb_status {
      const bool read =
          static_cast<const ParameterText&>(self(plugin)).from_text(parameter, text, *value);
      return read ? CTXB_OK : CTXB_ERROR_UNSUPPORTED;
    });
  }
  static ctxb_status get_frames(const ctxb_plugin* plugin, std::uint32_t input, std::int32_t* first,
                                std::int32_t* last) {
    return guarded(host_of(plugin), [&]() -> ctxb_status {
      const auto frames = static_cast<const Temporal&>(self(plugin)).frames(input);
      *first = frames.first;
      *last = frames.last;
      return CTXB_OK;
    });
  }
  static ctxb_status get_extent(const ctxb_plugin* plugin, const ctxb_region_question* question,
                                std::uint32_t output, ctxb_rectangle* extent) {
    return guarded(host_of(plugin), [&]() -> ctxb_status {
      const Regional& regional = self(plugin);
      *extent = regional.extent(RegionQuestion(*question), output, *extent);
      return CTXB_OK;
    });
  }
  static ctxb_status get_region(const ctxb_plugin* plugin, const ctxb_region_question* question,
                                std::uint32_t output, const ctxb_rectangle* wanted,
                                std::uint32_t input, ctxb_rectangle* needed) {
    return guarded(host_of(plugin), [&]() -> ctxb_status {
      const Regional& regional = self(plugin);
      *needed = regional.region(RegionQuestion(*question), output, *wanted, input);
      return CTXB_OK;
    });
  }
  static void on_main_thread(const ctxb_plugin* plugin) {
    guarded_void(host_of(plugin), [&] { static_cast<Callback&>(self(plugin)).on_main_thread(); });
  }
};

}  // namespace ctxbroker::sdk::detail
