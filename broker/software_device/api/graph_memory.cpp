// SPDX-License-Identifier: Apache-2.0
#include "api/graph_memory.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "api/device.hpp"
#include "api/process.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

struct State : BlockCharge {
  State(Device& of, std::size_t its_bytes) : device(of), bytes(its_bytes) {}
  ~State() override { State::give_back(); }
  void give_back() noexcept override;

  Device& device;
  const std::size_t bytes;
  // Under the book's mutex.
  bool has_node = true;    // a graph, or an executable one, names it
  bool allocated = false;  // by a launch, and not freed yet
  bool reserved = false;   // takes the device's memory
};

// Of the process: devices and graphs end in any order. Never destroyed, as threads may free until
// the end.
struct Book {
  std::mutex mutex;
  std::map<const Device*, GraphMemoryFigures> figures;
  std::vector<State*> states;

  static Book& one() {
    static auto* const book = new Book;
    return *book;
  }
  void leave_reserve(State& state) noexcept {
    if (!state.reserved) return;
    state.reserved = false;
    state.device.give_back(state.bytes);
    figures[&state.device].reserved -= state.bytes;
  }
};

void State::give_back() noexcept {
  Book& book = Book::one();
  std::lock_guard lock(book.mutex);
  std::erase(book.states, this);
  if (allocated) book.figures[&device].used -= bytes;
  allocated = false;
  book.leave_reserve(*this);
}

State& state_of(const Block& block) {
  return static_cast<State&>(*block.charge);
}

}  // namespace

GraphMemory::GraphMemory(Device& device, std::size_t bytes)
    : block_(Process::instance().memory.allocate_charged(Block::Kind::graph, device, bytes,
                                                         std::make_shared<State>(device, bytes))) {
  Book& book = Book::one();
  std::lock_guard lock(book.mutex);
  book.states.push_back(&state_of(*block_));
}

GraphMemory::~GraphMemory() {
  bool ends = false;
  {
    std::lock_guard lock(Book::one().mutex);
    State& state = state_of(*block_);
    state.has_node = false;
    ends = !state.allocated;
  }
  if (ends) Process::instance().memory.remove(*block_);
}

CUdeviceptr GraphMemory::address() const noexcept {
  return block_->begin;
}
std::size_t GraphMemory::bytes() const noexcept {
  return block_->size;
}
Device& GraphMemory::device() const noexcept {
  return block_->device;
}

void GraphMemory::allocate(bool again) {
  Book& book = Book::one();
  std::lock_guard lock(book.mutex);
  State& state = state_of(*block_);
  if (state.allocated) return check_value(again);
  GraphMemoryFigures& figures = book.figures[&state.device];
  if (!state.reserved) {
    check_that(state.device.reserve(state.bytes), CUDA_ERROR_OUT_OF_MEMORY);
    state.reserved = true;
    figures.reserved += state.bytes;
    figures.reserved_high = std::max(figures.reserved_high, figures.reserved);
  }
  state.allocated = true;
  figures.used += state.bytes;
  figures.used_high = std::max(figures.used_high, figures.used);
}

void free_graph_memory(const Block& block) {
  check_value(block.kind == Block::Kind::graph);
  bool ends = false;
  {
    Book& book = Book::one();
    std::lock_guard lock(book.mutex);
    State& state = state_of(block);
    check_value(state.allocated);
    state.allocated = false;
    book.figures[&state.device].used -= state.bytes;
    ends = !state.has_node;
  }
  if (ends) Process::instance().memory.remove(block);
}

void trim_graph_memory(const Device& device) {
  Book& book = Book::one();
  std::lock_guard lock(book.mutex);
  for (State* state : book.states)
    if (&state->device == &device && !state->allocated) book.leave_reserve(*state);
}

GraphMemoryFigures graph_memory_figures(const Device& device) {
  Book& book = Book::one();
  std::lock_guard lock(book.mutex);
  return book.figures[&device];
}

void reset_graph_memory_high(const Device& device, CUgraphMem_attribute which) {
  Book& book = Book::one();
  std::lock_guard lock(book.mutex);
  GraphMemoryFigures& figures = book.figures[&device];
  if (which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) figures.used_high = figures.used;
  if (which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) figures.reserved_high = figures.reserved;
}

}  // namespace ctxbroker::software
