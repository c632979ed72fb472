// What the gate made current on a thread that no guard is around.
#pragma once

#include <atomic>
#include <memory>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// How many threads have a context current so. Below zero: it has ended, and nobody can any more.
using Borrowers = std::atomic<int>;

// The calling thread has this context current from now on, instead of what it borrowed before;
// null: nothing of a lease. Until the thread ends. False: the context has ended.
bool borrow_on_this_thread(const std::shared_ptr<Borrowers>& borrowers) noexcept;

// Lets nobody borrow it any more, if nobody does now.
bool close_to_borrowers(Borrowers& borrowers) noexcept;
void reopen_to_borrowers(Borrowers& borrowers) noexcept;  // after it

// Whether it is a lease's context that the gate made current on it.
bool borrows_on_this_thread() noexcept;

}  // namespace ctxbroker::detail
