// SPDX-License-Identifier: Apache-2.0
// Rules for calls that change, or hold up, something that the caller may not hold. A row of a
// table says which argument of the call that is. One function looks at them all.
//
//   row<Uses<"cuStreamSetAttribute", 3, Use{0, Kind::stream}>>(),
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "gate/held.hpp"

namespace ctxbroker::detail {

// An argument, or what a call only passes on. Every argument of these functions is passed in one
// register or one word of the stack.
using Word = std::uintptr_t;

inline constexpr std::size_t is_one = ~std::size_t{0};

// Structures that name things. The caller has to hold these, or must have been lent them.
enum class Structure : std::uint8_t {
  none,
  copy,         // CUDA_MEMCPY3D: arrays
  resource,     // CUDA_RESOURCE_DESC: arrays
  kernel,       // CUDA_KERNEL_NODE_PARAMS_v2: a context
  batch,        // CUDA_BATCH_MEM_OP_NODE_PARAMS: a context
  signals,      // CUDA_EXT_SEM_SIGNAL_NODE_PARAMS
  waits,        // CUDA_EXT_SEM_WAIT_NODE_PARAMS
  instantiate,  // CUDA_GRAPH_INSTANTIATE_PARAMS: a stream
};

// Describes how a call uses one of its arguments.
struct Use {
  std::size_t position;
  Kind kind;  // Kind::graph: or a node of one. Kind::memory: an address in it
  // Only another tenant's is refused. What nobody holds may be the host's, lent to the caller.
  bool may_be_lent = false;
  // The argument is an array of such handles, and this is the position of its length.
  std::size_t count_at = is_one;
  // The call is so frequent that the host's is passed on, and a tenant's is looked at once for a
  // handle: see is_known_own.
  bool often = false;
  // The argument points to a structure, and the call works on the things that this names. Null: the
  // driver itself answers.
  Structure structure = Structure::none;
};
inline constexpr bool lent = true;
constexpr Use structure_at(std::size_t position, Structure structure) {
  return {.position = position, .kind = Kind::nothing, .structure = structure};
}

// Returns CUDA_SUCCESS if the tenant may use the thing. Otherwise, gives the tenant a strike and
// returns the status for the call. For a thing that ended with its context it returns
// CUDA_ERROR_CONTEXT_IS_DESTROYED, without a strike.
CUresult check_use(GatedTenant& tenant, const char* function, Kind kind, std::uint64_t handle,
                   bool may_be_lent = false) noexcept;
// The same for any caller. The host may use everything. Nobody's code may not use a thing that a
// tenant's code has made.
CUresult check_use(const Caller& caller, const char* function, Kind kind, std::uint64_t handle,
                   bool may_be_lent = false) noexcept;
CUresult check_uses(const Caller& caller, const char* function, std::span<const Word> words,
                    std::span<const Use> uses) noexcept;

// The things that a structure names, in use_structures.cpp. Each returns what check_use does.
CUresult check_inside(const Caller& caller, const char* function,
                      const CUDA_MEMCPY3D& copy) noexcept;
CUresult check_inside(const Caller& caller, const char* function,
                      const CUDA_RESOURCE_DESC& resource) noexcept;
CUresult check_inside(const Caller& caller, const char* function,
                      const CUDA_GRAPH_INSTANTIATE_PARAMS& parameters) noexcept;
CUresult check_semaphores(const Caller& caller, const char* function,
                          const CUexternalSemaphore* semaphores, unsigned count) noexcept;

// Nodes that signal or wait for semaphores.
template <typename Node>
requires requires(const Node& node) {
  node.extSemArray;
}
CUresult check_inside(const Caller& caller, const char* function, const Node& node) noexcept {
  return check_semaphores(caller, function, node.extSemArray, node.numExtSems);
}
// Nodes that work in a context. The host can lend that of its own work.
template <typename Node>
requires requires(const Node& node) {
  node.ctx;
}
CUresult check_inside(const Caller& caller, const char* function, const Node& node) noexcept {
  return check_use(caller, function, Kind::context, handle_value(node.ctx), lent);
}

// The structure that an argument points to. The driver itself answers for null.
CUresult check_structure(const Caller& caller, const char* function, Structure structure,
                         Word address) noexcept;

// Returns whether a stream, an event or an executable graph is the tenant's, or lent to it. Takes
// no lock if it was asked before, and none of these has ended since.
bool is_known_own(GatedTenant& tenant, Kind kind, std::uint64_t handle) noexcept;

// The context is that of the tenant's shared lease, in which others work too.
bool is_of_shared_lease(GatedTenant& tenant, CUcontext context) noexcept;

// Notes a member of a whole, which is not in the ledger itself: a node or an inner graph of a
// graph, the graph of a stream's capture, the context of a green context. Call it when a call has
// returned the member. If there is no memory for the note, the tenant may not change the member.
void note_member(Kind kind, std::uint64_t whole, std::uint64_t member) noexcept;
template <typename Member>
void note_members(Kind kind, std::uint64_t whole, const Member* members,
                  std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) note_member(kind, whole, handle_value(members[i]));
}
// The graph that a node is a member of; of anything else, itself.
std::uint64_t graph_of(std::uint64_t node_or_graph) noexcept;
// Returns the whole that it was a member of; 0: of none.
std::uint64_t forget_member(std::uint64_t member) noexcept;
// That whole has ended.
void forget_parts_of(Kind kind, std::uint64_t whole) noexcept;
// Forgets the members of a graph or node, and theirs, before the driver destroys it, because their
// values may be another graph's as soon as it has.
class TakenParts {
 public:
  explicit TakenParts(std::uint64_t whole) noexcept;
  // The driver has refused: they are members as before.
  void put_back() const noexcept;

 private:
  std::map<std::pair<Kind, std::uint64_t>, std::vector<std::uint64_t>> of_;
};

template <SymbolName name, typename Places, Use... uses>
struct UsesAs;
template <SymbolName name, std::size_t... places, Use... uses>
struct UsesAs<name, std::index_sequence<places...>, uses...> {
  template <std::size_t>
  using WordAt = Word;
  using Real = DriverFunction<name, CUresult(WordAt<places>...)>;
  static constexpr std::array<Use, sizeof...(uses)> all{uses...};
  static CUresult call(WordAt<places>... arguments) noexcept {
    const Caller caller = enter_rule<Real>();
    const Word words[] = {arguments...};
    const CUresult status = check_uses(caller, Real::symbol, words, all);
    return status == CUDA_SUCCESS ? Real::call(arguments...) : status;
  }
};
// A rule whose call is refused if the caller may not use what it names.
template <typename Rule, typename Function, Use... uses>
struct CheckedAs;
template <typename Rule, typename... Parameters, Use... uses>
struct CheckedAs<Rule, CUresult(Parameters...), uses...> {
  using Real = typename Rule::Real;
  static constexpr std::array<Use, sizeof...(uses)> all{uses...};
  static CUresult call(Parameters... arguments) noexcept {
    Caller caller = calling();
    caller.from = thread_state.called_from;
    const Word words[] = {handle_value(arguments)...};
    const CUresult status = check_uses(caller, Real::symbol, words, all);
    if (status == CUDA_SUCCESS) return Rule::call(arguments...);
    enter_rule<Real>();
    return status;
  }
};
template <typename Rule, Use... uses>
using Checked = CheckedAs<Rule, typename Rule::Real::Function, uses...>;

// CUresult name(...) of so many words.
template <SymbolName name, std::size_t words, Use... uses>
using Uses = UsesAs<name, std::make_index_sequence<words>, uses...>;

}  // namespace ctxbroker::detail
