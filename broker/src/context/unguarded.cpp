#include "context/unguarded.hpp"

namespace ctxbroker::detail {
namespace {

// Per thread, because what is current is. It ends with the thread: then nothing is current any
// more.
struct Borrowed {
  std::shared_ptr<std::atomic<int>> borrowers;
  ~Borrowed() { give_back(); }
  void give_back() const noexcept {
    if (borrowers != nullptr) borrowers->fetch_sub(1, std::memory_order_release);
  }
};
thread_local Borrowed borrowed;

}  // namespace

void borrow_on_this_thread(const std::shared_ptr<std::atomic<int>>& borrowers) noexcept {
  if (borrowed.borrowers == borrowers) return;
  borrowed.give_back();
  if (borrowers != nullptr) borrowers->fetch_add(1, std::memory_order_relaxed);
  borrowed.borrowers = borrowers;
}

bool borrows_on_this_thread() noexcept {
  return borrowed.borrowers != nullptr;
}

}  // namespace ctxbroker::detail
