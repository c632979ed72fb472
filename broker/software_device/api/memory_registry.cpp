#include "api/memory_registry.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/process.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

constexpr std::size_t pinned_alignment = 4096;              // bytes, a page as with NVIDIA's driver
constexpr std::size_t fill_wholly = std::size_t(64) << 20;  // bytes
constexpr std::size_t fill_at_least = std::size_t(1) << 20;
constexpr int undefined_byte = 0xCD;

bool charged(Block::Kind kind) {
  return kind == Block::Kind::device || kind == Block::Kind::module;
}

}  // namespace

Block::Block(Kind its_kind, Context& of, std::uintptr_t its_begin, std::size_t its_size,
             unsigned its_flags)
    : kind(its_kind),
      context(of),
      begin(its_begin),
      size(its_size),
      host_flags(its_flags),
      id(next_id()) {}

Block::~Block() {
  if (kind == Kind::registered) return;
  std::free(reinterpret_cast<void*>(begin));  // NOLINT(performance-no-int-to-ptr)
  if (charged(kind)) context.device.give_back(size);
}

std::shared_ptr<Block> MemoryRegistry::allocate(Block::Kind kind, Context& context,
                                                std::size_t bytes, unsigned host_flags) {
  if (charged(kind)) require(context.device.reserve(bytes), CUDA_ERROR_OUT_OF_MEMORY);
  std::size_t alignment = kind == Block::Kind::pinned ? pinned_alignment : device_limits::alignment;
  void* memory = nullptr;
  if (bytes <= SIZE_MAX - alignment)
    memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) {
    if (charged(kind)) context.device.give_back(bytes);
    fail(CUDA_ERROR_OUT_OF_MEMORY);
  }
  auto block = std::make_shared<Block>(kind, context, reinterpret_cast<std::uintptr_t>(memory),
                                       bytes, host_flags);
  std::memset(memory, undefined_byte, bytes <= fill_wholly ? bytes : fill_at_least);
  insert(block);
  return block;
}

void MemoryRegistry::insert(const std::shared_ptr<Block>& block) {
  std::unique_lock lock(mutex_);
  block->context.require_alive();
  map_.add({block->begin, block->begin + block->size});
  blocks_.emplace(block->begin, block);
}

void MemoryRegistry::add_registered(Context& context, std::uintptr_t begin, std::size_t bytes,
                                    unsigned host_flags) {
  require_value(begin != 0 && bytes != 0 && bytes <= SIZE_MAX - begin);
  auto block = std::make_shared<Block>(Block::Kind::registered, context, begin, bytes, host_flags);
  std::unique_lock lock(mutex_);
  context.require_alive();
  auto next = blocks_.lower_bound(begin);
  bool overlaps = next != blocks_.end() && next->first < begin + bytes;
  if (next != blocks_.begin()) {
    const Block& previous = *std::prev(next)->second;
    overlaps |= previous.begin + previous.size > begin;
  }
  require(!overlaps, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  map_.add({begin, begin + bytes});
  blocks_.emplace(begin, block);
}

std::shared_ptr<Block> MemoryRegistry::find(std::uintptr_t address) const {
  std::shared_lock lock(mutex_);
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  const std::shared_ptr<Block>& block = std::prev(after)->second;
  return block->holds(address, 1) ? block : nullptr;
}

std::shared_ptr<Block> MemoryRegistry::require_range(std::uintptr_t address,
                                                     std::size_t bytes) const {
  std::shared_ptr<Block> block = find(address);
  require_value(block != nullptr && block->holds(address, bytes));
  return block;
}

// A command that runs now may still use the memory, on whichever device: each holds it until then.
void MemoryRegistry::retire(const std::shared_ptr<Block>& block) {
  for (const auto& device : Process::instance().devices) device->executor.retire(block);
}

bool MemoryRegistry::remove(const Block& block) {
  std::shared_ptr<Block> removed;
  {
    std::unique_lock lock(mutex_);
    auto found = blocks_.find(block.begin);
    if (found == blocks_.end() || found->second.get() != &block) return false;
    removed = std::move(found->second);
    blocks_.erase(found);
    map_.remove(removed->begin);
  }
  retire(removed);
  return true;
}

template <class Chosen>
void MemoryRegistry::remove_where(Chosen chosen) {
  std::vector<std::shared_ptr<Block>> removed;
  {
    std::unique_lock lock(mutex_);
    for (auto entry = blocks_.begin(); entry != blocks_.end();) {
      if (!chosen(*entry->second)) {
        ++entry;
        continue;
      }
      map_.remove(entry->first);
      removed.push_back(std::move(entry->second));
      entry = blocks_.erase(entry);
    }
  }
  for (const auto& block : removed) retire(block);
}

void MemoryRegistry::remove_all_of(const Context& context) {
  remove_where([&](const Block& block) { return &block.context == &context; });
}

void MemoryRegistry::remove_everything() {
  remove_where([](const Block&) { return true; });
}

}  // namespace ctxbroker::software
