// SPDX-License-Identifier: Apache-2.0
// What must not compile. A mistake in the order of a struct's members, or a number where a word
// belongs, must not become options that mean something else.
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/graph.hpp"
#include "ctxbroker/stream.hpp"

namespace ctxbroker {
namespace {

// Whether Struct{members...} compiles.
template <typename Struct, typename... Members>
concept braces = requires(Members... members) {
  Struct{members...};
};

// A kind or a number alone is neither a lease nor a placement.
static_assert(!std::is_convertible_v<LeaseKind, LeaseChoice>);
static_assert(!std::is_convertible_v<int, LeaseChoice>);
static_assert(!std::is_constructible_v<LeaseChoice, int>);
static_assert(!std::is_constructible_v<LeaseChoice, int, unsigned>);
static_assert(!std::is_convertible_v<int, Placement>);
static_assert(!std::is_convertible_v<PlacementRule, Placement>);
static_assert(!std::is_convertible_v<std::uint32_t, TenantId>);
static_assert(!std::is_convertible_v<LeaseChoice, bool>);

// {0, kind, 0}: a device, a lease and a budget? The first two have to say what they are.
static_assert(!braces<InstanceOptions, int, LeaseKind, int>);
static_assert(!braces<InstanceOptions, Placement, LeaseKind>);
static_assert(!braces<InstanceOptions, Placement, int>);
static_assert(!braces<InstanceOptions, int, LeaseChoice>);
static_assert(braces<InstanceOptions, Placement, LeaseChoice, std::uint64_t>);
static_assert(!braces<TenantOptions, LeaseKind>);
static_assert(!braces<TenantOptions, int>);
static_assert(!braces<TenantOptions, LeaseChoice, int>, "a number is no flag");
static_assert(braces<TenantOptions, LeaseChoice, bool>);

// Handles are moved, never copied, and never made out of something else by accident.
template <typename Handle>
inline constexpr bool moves_only =
    std::is_nothrow_move_constructible_v<Handle>&& std::is_nothrow_move_assignable_v<Handle> &&
    !std::is_copy_constructible_v<Handle> && !std::is_copy_assignable_v<Handle>;
static_assert(moves_only<Broker> && moves_only<Tenant> && moves_only<PluginInstance>);
static_assert(moves_only<Graph> && moves_only<DeviceMemory> && moves_only<Stream>);
static_assert(!std::is_convertible_v<Tenant&, Stream>);
static_assert(!std::is_convertible_v<Tenant&, Guard>);
static_assert(!std::is_move_constructible_v<Guard>);
static_assert(!std::is_convertible_v<Stream, bool> && !std::is_convertible_v<DeviceMemory, bool>);

// Nothing of the implementation can be reached.
template <typename Handle>
concept shows_impl = requires(Handle handle) {
  handle.impl();
};
static_assert(!shows_impl<Broker> && !shows_impl<PluginInstance> && !shows_impl<Tenant>);

}  // namespace
}  // namespace ctxbroker
