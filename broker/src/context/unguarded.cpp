#include "context/unguarded.hpp"

namespace ctxbroker::detail {
namespace {

// Per thread, because what is current is. It ends with the thread: then nothing is current any
// more.
struct Borrowed {
  std::shared_ptr<Borrowers> borrowers;
  ~Borrowed() { give_back(); }
  void give_back() const noexcept {
    if (borrowers != nullptr) borrowers->fetch_sub(1, std::memory_order_release);
  }
};
thread_local Borrowed borrowed;

}  // namespace

bool borrow_on_this_thread(const std::shared_ptr<Borrowers>& borrowers) noexcept {
  if (borrowed.borrowers == borrowers) return true;
  if (borrowers != nullptr) {
    int count = borrowers->load(std::memory_order_relaxed);
    do {
      if (count < 0) return false;
    } while (!borrowers->compare_exchange_weak(count, count + 1, std::memory_order_acquire,
                                               std::memory_order_relaxed));
  }
  borrowed.give_back();
  borrowed.borrowers = borrowers;
  return true;
}

bool borrows_on_this_thread() noexcept {
  return borrowed.borrowers != nullptr;
}

bool close_to_borrowers(Borrowers& borrowers) noexcept {
  int none = 0;
  return borrowers.compare_exchange_strong(none, -1, std::memory_order_acq_rel);
}

void reopen_to_borrowers(Borrowers& borrowers) noexcept {
  borrowers.store(0, std::memory_order_release);
}

}  // namespace ctxbroker::detail
