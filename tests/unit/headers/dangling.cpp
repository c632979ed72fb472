// SPDX-License-Identifier: Apache-2.0
// Members that lend something of their object. A temporary must not lend it: it ends first. Each
// static_assert has its control: the same member of a variable compiles.
#include <string>
#include <type_traits>
#include <utility>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/graph.hpp"
#include "ctxbroker/host_memory.hpp"
#include "ctxbroker/plugin.hpp"
#include "ctxbroker/probe.hpp"
#include "ctxbroker/scan.hpp"
#include "ctxbroker/stream.hpp"
#include "ctxbroker/worker_graph.hpp"

namespace ctxbroker {
namespace {

template <typename Object>
concept iterates = requires(Object&& object) {
  std::forward<Object>(object).begin();
  std::forward<Object>(object).end();
};
template <typename Object>
concept has_address = requires(Object&& object) {
  std::forward<Object>(object).address();
};
template <typename Object>
concept has_data = requires(Object&& object) {
  std::forward<Object>(object).data();
};
template <typename Object>
concept has_get = requires(Object&& object) {
  std::forward<Object>(object).get();
};
template <typename Object>
concept finds = requires(Object&& object) {
  std::forward<Object>(object).find("name");
};
template <typename Object>
concept lists_plugins = requires(Object&& object) {
  std::forward<Object>(object).plugins();
};

// Iterators and pointers.
static_assert(iterates<sdk::Segments&> && !iterates<sdk::Segments>);
static_assert(iterates<sdk::Events&> && !iterates<sdk::Events>);
static_assert(iterates<ParameterValue&> && !iterates<ParameterValue>);
static_assert(finds<ProbeReport&> && !finds<ProbeReport>);
static_assert(finds<ScanResult&> && !finds<ScanResult>);
static_assert(lists_plugins<ScanResult&> && !lists_plugins<ScanResult>);

// Memory and streams that end with their object.
static_assert(has_address<sdk::DeviceBuffer<float>&> && !has_address<sdk::DeviceBuffer<float>>);
static_assert(has_data<sdk::PackedArguments<int>&> && !has_data<sdk::PackedArguments<int>>);
static_assert(has_address<DeviceMemory&> && !has_address<DeviceMemory>);
static_assert(has_address<WorkerDeviceBuffer&> && !has_address<WorkerDeviceBuffer>);
static_assert(has_data<WorkerBuffer&> && !has_data<WorkerBuffer>);
static_assert(has_data<HostMemory&> && !has_data<HostMemory>);
static_assert(has_get<Stream&> && !has_get<Stream>);

// Values of a temporary are copies, so that a loop over them is right.
#define CTXB_IS_VALUE(expression) static_assert(!std::is_reference_v<decltype(expression)>)
CTXB_IS_VALUE(std::declval<PluginLibrary>().plugins());
CTXB_IS_VALUE(std::declval<PluginLibrary>().path());
CTXB_IS_VALUE(std::declval<PluginLibrary>().name());
CTXB_IS_VALUE(std::declval<AdoptedLibrary>().path());
CTXB_IS_VALUE(std::declval<Tenant>().name());
CTXB_IS_VALUE(std::declval<PluginInstance>().description());
CTXB_IS_VALUE(std::declval<Broker>().driver());
CTXB_IS_VALUE(std::declval<Broker>().devices());
CTXB_IS_VALUE(std::declval<Graph>().job_inputs());
CTXB_IS_VALUE(std::declval<WorkerGraph>().driver());
CTXB_IS_VALUE(std::declval<WorkerGraph>().devices());
CTXB_IS_VALUE(std::declval<WorkerGraph>().inputs());
CTXB_IS_VALUE(std::declval<WorkerGraph>().outputs());
CTXB_IS_VALUE(std::declval<WorkerGraph>().description(0));
CTXB_IS_VALUE(std::declval<WorkerGraph>().job_inputs());
CTXB_IS_VALUE(std::declval<Error>().message());
CTXB_IS_VALUE(std::declval<Error>().origin());
CTXB_IS_VALUE(std::declval<sdk::Descriptor>().raw());
CTXB_IS_VALUE(std::declval<sdk::Global<int>>().address());
CTXB_IS_VALUE(*std::declval<sdk::Segments::Iterator>());

// Tables that a description keeps by pointer.
template <typename Ports>
concept takes_ports = requires(const sdk::Descriptor& descriptor, Ports&& ports) {
  descriptor.inputs(std::forward<Ports>(ports));
  descriptor.outputs(std::forward<Ports>(ports));
};
template <typename Modules>
concept takes_modules = requires(const sdk::Descriptor& descriptor, Modules&& modules) {
  descriptor.modules(std::forward<Modules>(modules));
};
using Ports = const ctxb_port[1];
using Modules = const ctxb_module[1];
using Texts = const char* const[2];
static_assert(takes_ports<Ports&> && !takes_ports<Ports>);
static_assert(takes_modules<Modules&> && !takes_modules<Modules>);
template <typename Kind, typename... Arguments>
inline constexpr bool is_made_of =
    std::is_constructible_v<Kind, int, const char*, const char*, const char*, Arguments...>;
static_assert(is_made_of<sdk::Choice, Texts&, int> && !is_made_of<sdk::Choice, Texts, int>);
static_assert(is_made_of<sdk::File, Texts&> && !is_made_of<sdk::File, Texts>);

}  // namespace
}  // namespace ctxbroker
