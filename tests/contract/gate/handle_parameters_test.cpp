// SPDX-License-Identifier: Apache-2.0
// A neighbour's handle is refused wherever a guarded function takes one: as a parameter, and inside
// a structure. The table of these places comes from the toolkit's headers.
#include <gmock/gmock.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gate/use.hpp"
#include "ledger/ledger.hpp"
#include "recording_broker.hpp"
#include "support/driver_by_name.hpp"
#include "support/raw_driver.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using detail::Holder;
using detail::Kind;
using detail::ledger;
using detail::Word;

struct Place {
  const char* function;
  const char* shape;  // of the parameters: (p)ointers, (d)evices and (n)umbers
  std::size_t position;
  Kind kind;
  bool is_array = false;    // the handle is in an array, to which the parameter or member points
  const char* member = "";  // in the structure to which the parameter points; "": there is none
  std::size_t offset = 0;   // of the member
};
constexpr Place places[] = {
#define CTXB_HANDLE(function, shape, position, kind) {#function, shape, position, Kind::kind},
#define CTXB_HANDLES(function, shape, position, kind) \
  {#function, shape, position, Kind::kind, true},
#define CTXB_HANDLE_IN(function, shape, position, kind, type, member) \
  {#function, shape, position, Kind::kind, false, #member, offsetof(type, member)},
#define CTXB_HANDLES_IN(function, shape, position, kind, type, member) \
  {#function, shape, position, Kind::kind, true, #member, offsetof(type, member)},
#include "handle_parameters.inc"
};

// Places whose handle may be a neighbour's.
struct Harmless {
  const char* function;  // its beginning
  std::size_t position;
  const char* member;  // its beginning
};
constexpr Harmless harmless[] = {
    // The driver takes nodes of the same graph only.
    {"cuGraphAdd", 2, ""},
    {"cuGraphAddDependencies", 1, ""},
    {"cuGraphRemoveDependencies", 1, ""},
    {"cuGraphRemoveDependencies", 2, ""},
    {"cuStreamBeginCaptureToGraph", 2, ""},
    // The node tells which one of the executable graph it is. Its own graph is left as it is.
    {"cuGraphExecBatchMemOpNodeSetParams", 1, ""},
    {"cuGraphExecChildGraphNodeSetParams", 1, ""},
    {"cuGraphExecEventRecordNodeSetEvent", 1, ""},
    {"cuGraphExecEventWaitNodeSetEvent", 1, ""},
    {"cuGraphExecExternalSemaphoresSignalNodeSetParams", 1, ""},
    {"cuGraphExecExternalSemaphoresWaitNodeSetParams", 1, ""},
    {"cuGraphExecHostNodeSetParams", 1, ""},
    {"cuGraphExecKernelNodeSetParams", 1, ""},
    {"cuGraphExecMemcpyNodeSetParams", 1, ""},
    {"cuGraphExecMemsetNodeSetParams", 1, ""},
    {"cuGraphExecNodeSetParams", 1, ""},
    {"cuGraphNodeSetEnabled", 1, ""},
    // It is read only.
    {"cuGraphChildGraphNodeGetGraph", 0, ""},
    {"cuGraphGetEdges", 0, ""},
    {"cuGraphGetNodes", 0, ""},
    {"cuGraphGetRootNodes", 0, ""},
    {"cuGraphHostNodeGetParams", 0, ""},
    {"cuGraphKernelNodeCopyAttributes", 1, ""},
    {"cuGraphNodeFindInClone", 1, ""},
    {"cuGraphNodeFindInClone", 2, ""},
    {"cuGraphNodeGetDepende", 0, ""},
    {"cuStreamCopyAttributes", 1, ""},
    {"cuStreamGetCaptureInfo", 0, ""},
    {"cuStreamGetCtx", 0, ""},
    {"cuStreamGetFlags", 0, ""},
    {"cuStreamGetGreenCtx", 0, ""},
    {"cuCtxFromGreenCtx", 1, ""},
    {"cuCtxGetId", 0, ""},
    {"cuGreenCtxGetId", 0, ""},
    // The call waits for it, and changes nothing.
    {"cuCtxSynchronize_v2", 0, ""},
    {"cuEventSynchronize", 0, ""},
    {"cuStreamSynchronize", 0, ""},
    // The call writes it.
    {"cuGraphAddNode", 4, "conditional.phGraph_out"},
    {"cuGraphAddNode_v2", 5, "conditional.phGraph_out"},
    {"cuGraphExecNodeSetParams", 2, "conditional.phGraph_out"},
    {"cuGraphNodeSetParams", 1, "conditional.phGraph_out"},
    {"cuGraphExecUpdate_v2", 2, "error"},
    {"cuGraphInstantiateWithParams", 2, "hErrNode_out"},
    // No attribute of a stream has an event.
    {"cuStreamSetAttribute", 2, ""},
    // It can only be one that the caller's graph refers to.
    {"cuGraphReleaseUserObject", 1, ""},
};

bool begins_with(std::string_view text, std::string_view begin) {
  return text.substr(0, begin.size()) == begin;
}
bool is_harmless(const Place& place) {
  for (const Harmless& one : harmless) {
    if (begins_with(place.function, one.function) && place.position == one.position &&
        begins_with(place.member, one.member)) {
      return true;
    }
  }
  return false;
}

// A value in the structure beside the handle, without which the handle is not looked at.
struct Beside {
  const char* member;  // its beginning
  std::size_t offset;
  std::uint32_t value;
};
constexpr std::size_t node_type = offsetof(CUgraphNodeParams, type);
constexpr Beside beside[] = {
    {"kernel.", node_type, CU_GRAPH_NODE_TYPE_KERNEL},
    {"memcpy.", node_type, CU_GRAPH_NODE_TYPE_MEMCPY},
    {"memset.", node_type, CU_GRAPH_NODE_TYPE_MEMSET},
    {"graph.", node_type, CU_GRAPH_NODE_TYPE_GRAPH},
    {"eventWait.", node_type, CU_GRAPH_NODE_TYPE_WAIT_EVENT},
    {"eventRecord.", node_type, CU_GRAPH_NODE_TYPE_EVENT_RECORD},
    {"extSemSignal.", node_type, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL},
    {"extSemSignal.", offsetof(CUgraphNodeParams, extSemSignal.numExtSems), 1},
    {"extSemWait.", node_type, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT},
    {"extSemWait.", offsetof(CUgraphNodeParams, extSemWait.numExtSems), 1},
    {"memOp.", node_type, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP},
    {"conditional.", node_type, CU_GRAPH_NODE_TYPE_CONDITIONAL},
    {"extSemArray", offsetof(CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v1, numExtSems), 1},
    {"srcArray", offsetof(CUDA_MEMCPY3D_v2, srcMemoryType), CU_MEMORYTYPE_ARRAY},
    {"dstArray", offsetof(CUDA_MEMCPY3D_v2, dstMemoryType), CU_MEMORYTYPE_ARRAY},
    {"memcpy.copyParams.src", offsetof(CUgraphNodeParams, memcpy.copyParams.srcMemoryType),
     CU_MEMORYTYPE_ARRAY},
    {"memcpy.copyParams.dst", offsetof(CUgraphNodeParams, memcpy.copyParams.dstMemoryType),
     CU_MEMORYTYPE_ARRAY},
    {"resource.array", offsetof(CUarrayMapInfo, resourceType), CU_RESOURCE_TYPE_ARRAY},
    {"resource.mipmap", offsetof(CUarrayMapInfo, resourceType), CU_RESOURCE_TYPE_MIPMAPPED_ARRAY},
    {"memHandle.", offsetof(CUarrayMapInfo, memOperationType), CU_MEM_OPERATION_TYPE_MAP},
    {"hUploadStream", offsetof(CUDA_GRAPH_INSTANTIATE_PARAMS, flags),
     CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD},
    {"res.array", offsetof(CUDA_RESOURCE_DESC, resType), CU_RESOURCE_TYPE_ARRAY},
    {"res.mipmap", offsetof(CUDA_RESOURCE_DESC, resType), CU_RESOURCE_TYPE_MIPMAPPED_ARRAY},
};
static_assert(offsetof(CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v1, numExtSems) ==
              offsetof(CUDA_EXT_SEM_WAIT_NODE_PARAMS_v1, numExtSems));

constexpr std::size_t most_words = 12;
using AnyFunction = CUresult(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word,
                             Word);

// Stands in for the driver's function.
bool was_called = false;
CUresult driver_instead(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word) {
  was_called = true;
  return CUDA_ERROR_NOT_FOUND;
}

class HandleParametersTest : public RecordingBrokerTest {
 protected:
  // The code of a tenant makes an event, and the ledger tells whose it is.
  static Holder holder_of(Tenant& tenant) {
    CUevent event = nullptr;
    tenant.run(0, [&] { check_driver_call("cuEventCreate", &event, 0U); });
    return ledger().find(Kind::event, detail::handle_value(event))->holder;
  }
  // A thing of that kind, which the driver knows nothing of.
  static std::uint64_t hold(const Holder& holder, Kind kind) {
    static std::uint64_t last = 0x7a0000000000;
    last += 0x1000;
    ledger().add({.kind = kind, .holder = holder, .handle = last});
    return last;
  }

  CUresult call(Tenant& tenant, const Place& place, std::uint64_t handle) {
    const detail::RuleRow& row = find(place.function);
    std::array<std::array<std::uint64_t, 512>, most_words> pointed{};
    std::array<Word, most_words> words{};
    const std::string_view shape = place.shape;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      words[i] = shape[i] == 'p' ? reinterpret_cast<Word>(pointed[i].data()) : shape[i] == 'n';
    }
    for (const Place& other : places) {
      if (std::string_view(other.function) != place.function || *other.member != 0) continue;
      if (!other.is_array) words[other.position] = own[other.kind];
      if (other.is_array) pointed[other.position][0] = own[other.kind];
    }
    // The attribute of a kernel's node.
    if (begins_with(place.member, "programmatic")) {
      words[1] = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
    } else if (begins_with(place.member, "launchCompletion")) {
      words[1] = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    }
    std::array<std::uint64_t, 1> array{handle};
    const std::uint64_t value =
        place.is_array ? reinterpret_cast<std::uint64_t>(array.data()) : handle;
    if (*place.member == 0) {
      words[place.position] = value;
    } else {
      auto* const structure = reinterpret_cast<std::byte*>(pointed[place.position].data());
      std::memcpy(structure + place.offset, &value, sizeof value);
      for (const Beside& one : beside) {
        if (!begins_with(place.member, one.member)) continue;
        std::memcpy(structure + one.offset, &one.value, sizeof one.value);
      }
    }
    was_called = false;
    row.bind(reinterpret_cast<ctxb_gate_function>(driver_instead), place_of(place.function));
    auto* const rule = reinterpret_cast<AnyFunction*>(row.rule());
    const CUresult status = tenant.run(
        0, [&] { return std::apply([&](auto... each) { return rule(each...); }, words); });
    row.bind(reinterpret_cast<ctxb_gate_function>(raw.find(place.function)),
             place_of(place.function));
    return status;
  }
  static std::size_t place_of(std::string_view function) {
    std::size_t index = 0;
    while (detail::rule_at(index).symbol != function || detail::rule_at(index).rule == nullptr) {
      ++index;
    }
    return index;
  }
  static const detail::RuleRow& find(std::string_view function) {
    return detail::rule_at(place_of(function));
  }

  const RawDriver raw{broker.driver().path};
  std::map<Kind, std::uint64_t> own, theirs;
};

TEST_F(HandleParametersTest, ANeighboursHandleIsRefusedWhereverItIsPassed) {
  if (!driver_is_software())
    GTEST_SKIP() << "NVIDIA's driver must not see handles that it has not made";
  Tenant tenant = broker.open_tenant("tenant", TenantOptions{LeaseChoice(LeaseKind::green)});
  Tenant neighbour = broker.open_tenant("neighbour", TenantOptions{LeaseChoice(LeaseKind::green)});
  const Holder one = holder_of(tenant), other = holder_of(neighbour);
  for (const Place& place : places) {
    if (own.count(place.kind) != 0) continue;
    own[place.kind] = hold(one, place.kind);
    theirs[place.kind] = hold(other, place.kind);
  }
  // Calls that take an address are given 1, and a node is given as its graph.
  for (const Kind kind : {Kind::memory, Kind::graph_memory, Kind::reservation}) {
    ledger().add({.kind = kind, .holder = one, .handle = 1, .extent = 16});
  }
  detail::note_member(Kind::graph, hold(one, Kind::graph), own[Kind::graph]);
  for (const Place& place : places) {
    if (is_harmless(place)) continue;
    SCOPED_TRACE(std::string(place.function) + ", parameter " + std::to_string(place.position) +
                 " " + place.member + ": " + to_string(place.kind));
    const std::uint64_t before = tenant.strikes();
    call(tenant, place, own[place.kind]);
    EXPECT_EQ(tenant.strikes(), before) << "with its own handle, as a control";
    EXPECT_NE(call(tenant, place, theirs[place.kind]), CUDA_SUCCESS);
    EXPECT_FALSE(was_called) << "it went to the driver";
    EXPECT_EQ(tenant.strikes(), before + 1);
  }
}

}  // namespace
}  // namespace ctxbroker
