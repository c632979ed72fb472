// SPDX-License-Identifier: Apache-2.0
// Helpers that the C functions of ctxbroker/host.h share: the handles, the last error, and structs
// that begin with their size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/host.h"
#include "ctxbroker/tenant.hpp"
#include "plugin/struct_check.hpp"

struct ctxb_library {
  ctxbroker::AdoptedLibrary library;
};

struct ctxb_broker {
  ctxbroker::Broker broker;
  ctxbroker::GateInfo gate;
  std::vector<const char*> tools;  // the gate's, and a null
};

struct ctxb_tenant {
  ctxbroker::Tenant tenant;
  ctxbroker::Broker* broker;
  std::vector<std::unique_ptr<ctxb_library>> libraries;
  std::map<std::uint64_t, std::string> reasons;  // of the leases, by their generations
  unsigned uses = 0;                             // graphs with ends in its memory
};

struct ctxb_plugin_library {
  ctxbroker::PluginLibrary library;
  // The lists of each plug-in, which end with null.
  struct Lists {
    std::vector<const char*> features;
    std::vector<std::vector<const char*>> choices, endings;  // of each parameter
  };
  std::vector<Lists> lists;
};

struct ctxb_instance {
  ctxbroker::PluginInstance instance;
  std::string tenant;
  std::map<std::uint64_t, std::string> reasons;  // of the leases, by their generations
  unsigned uses = 0;                             // nodes of graphs
};

namespace ctxbroker::detail {

// Keeps the text for ctxb_last_error on this thread and returns `status`.
ctxb_status fail(ctxb_status status, const char* text) noexcept;

ctxb_status status_of(ErrorKind kind) noexcept;
// The C headers number as the enumerations do: CTXB_LEASE_*, CTXB_STATE_*, ...
template <typename Enum>
constexpr std::uint32_t code(Enum value) noexcept {
  return static_cast<std::uint32_t>(value);
}

// These take null for the defaults, and throw Error when the options cannot be.
BrokerOptions read(const ctxb_broker_options* given);
TenantOptions read(const ctxb_tenant_options* given);
InstanceOptions read(const ctxb_instance_options* given);
// Throws Error for null.
ActivationSizes read(const ctxb_activation_sizes* given);
bool read_flag(std::uint32_t given, const char* member);
std::optional<std::uint64_t> read_limit(std::uint64_t given);  // 0: not set; UINT64_MAX: none
LeaseChoice read_lease(std::uint32_t kind, std::uint32_t multiprocessors);

// The texts stay the caller's, and so does the list of features, which ends with null.
ctxb_plugin_info described(const PluginDescription& plugin, const char* const* features) noexcept;
// The texts stay with the caller: `reasons` keeps that of each generation.
void give_lease(ctxb_lease_info* info, const LeaseInfo& lease, const char* tenant,
                std::map<std::uint64_t, std::string>& reasons);

// Runs `body` and turns what it throws into a status and a text.
template <typename Body>
ctxb_status answered(Body&& body) noexcept {
  try {
    body();
    return CTXB_OK;
  } catch (const Error& error) {
    return fail(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(CTXB_ERROR_OUT_OF_HOST_MEMORY, "out of host memory");
  } catch (const std::exception& error) {
    return fail(CTXB_ERROR, error.what());
  } catch (...) {  // of a callback of the host's
    return fail(CTXB_ERROR, "a callback threw something that is no std::exception");
  }
}

// The same, but answers CTXB_ERROR_INVALID_ARGUMENT with the text `what` unless `sound`.
template <typename Body>
ctxb_status answered(bool sound, const char* what, Body&& body) noexcept {
  return sound ? answered(std::forward<Body>(body)) : fail(CTXB_ERROR_INVALID_ARGUMENT, what);
}

// Throws Error (invalid_argument) unless it holds.
inline void check_argument(bool holds, const char* what) {
  if (!holds) throw Error(ErrorKind::invalid_argument, what);
}

// Pointers to the texts, which stay where they are, and a null.
inline std::vector<const char*> list(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  pointers.push_back(nullptr);
  return pointers;
}

// Throws Error (invalid_argument) when there are not so many.
template <typename Thing>
const Thing& element_of(const std::vector<Thing>& all, std::uint32_t index, std::string_view owner,
                        const char* what) {
  if (index < all.size()) return all[index];
  throw Error(ErrorKind::invalid_argument, std::string(owner) + " has no " + what + ' ' +
                                               std::to_string(index) + "; it has " +
                                               std::to_string(all.size()));
}

// Returns whether a size can be that of a version of the struct. The members of each version end at
// multiples of 4, and a size of more than four times the present one is garbage.
template <typename Struct>
bool has_size(const Struct* given) noexcept {
  return is_valid(given, sizeof given->size) && given->size % 4 == 0 &&
         given->size <= 4 * sizeof *given;
}

// Returns the caller's struct, with 0 in the members that its header does not have. Throws Error
// (invalid_argument) with `complaint` when its size cannot be right.
template <typename Struct>
Struct taken(const Struct* given, const char* complaint) {
  check_argument(has_size(given), complaint);
  // Members of a later version must be 0, because this version would not do what they ask for.
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  const bool is_known =
      std::all_of(bytes + std::min<std::size_t>(given->size, sizeof *given), bytes + given->size,
                  [](unsigned char one) { return one == 0; });
  check_argument(is_known,
                 "a struct has members that this version of the broker does not know; use a newer "
                 "one, or leave them 0");
  Struct whole{};
  std::memcpy(&whole, given, std::min<std::size_t>(given->size, sizeof whole));
  return whole;
}

// Fills the members that the caller's header has. Throws as `taken`.
template <typename Struct>
void give(Struct* target, Struct whole, const char* complaint) {
  check_argument(has_size(target), complaint);
  hand_over(whole, target);
}

// Passes text to `write` as `pass` hands it out. What `write` refuses is the answer.
template <typename Pass>
ctxb_status send(ctxb_text_function write, void* data, Pass&& pass) noexcept {
  ctxb_status refused = CTXB_OK;
  const ctxb_status status = answered([&] {
    check_argument(write != nullptr, "write is null");
    pass([&](std::string_view text) {
      refused = write(data, text.data(), text.size());
      if (refused < 0) {
        throw Error(ErrorKind::output_file,
                    "the text was not taken: write returned " + std::to_string(refused));
      }
    });
  });
  return refused < 0 ? refused : status;
}

}  // namespace ctxbroker::detail
