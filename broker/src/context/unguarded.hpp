// What the gate made current on a thread that no guard is around.
#pragma once

#include <atomic>
#include <memory>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// The calling thread has this context current from now on, instead of what it borrowed before;
// null: nothing of a lease. Until the thread ends.
void borrow_on_this_thread(const std::shared_ptr<std::atomic<int>>& borrowers) noexcept;

// Whether it is a lease's context that the gate made current on it.
bool borrows_on_this_thread() noexcept;

}  // namespace ctxbroker::detail
