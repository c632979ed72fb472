// Physical memory is there until nobody holds its handle and nothing maps it, and counts so long.
// What is known here is which mappings are of which memory.
#pragma once

#include "gate/owners.hpp"

namespace ctxbroker::detail {

// Any thread; the handles and addresses are those of entries in the owners' book. Throw
// std::bad_alloc where they are not noexcept.
void note_mapping(std::uint64_t physical, std::uint64_t address);
// One more hold on a handle that is held already.
void note_another_hold(std::uint64_t physical);
// Gives such a hold back; false: there is none, so that the handle is about to end.
bool take_another_hold(std::uint64_t physical) noexcept;

// The tenant's holding of the handle, or of one mapping, has ended. Where the memory is still
// mapped, its bytes count with another mapping from now on; true then. Otherwise they are free.
bool pass_on_physical(const Holding& ended) noexcept;
bool pass_on_mapping(const Holding& ended) noexcept;

}  // namespace ctxbroker::detail
