// SPDX-License-Identifier: Apache-2.0
// Rules for calls that change, or hold up, something that the caller may not hold. A row of a
// table says which argument of the call that is. One function looks at them all.
//
//   row<Uses<"cuStreamSetAttribute", 3, Use{0, Kind::stream}>>(),
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "gate/held.hpp"

namespace ctxbroker::detail {

// An argument, or what a call only passes on. Every argument of these functions is passed in one
// register or one word of the stack.
using Word = std::uintptr_t;

inline constexpr std::size_t is_one = ~std::size_t{0};

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
};
inline constexpr bool lent = true;

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

// Returns whether a stream or an event is the tenant's, or lent to it. Takes no lock if it was
// asked before and no stream or event has ended since.
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
// CUresult name(...) of so many words.
template <SymbolName name, std::size_t words, Use... uses>
using Uses = UsesAs<name, std::make_index_sequence<words>, uses...>;

}  // namespace ctxbroker::detail
