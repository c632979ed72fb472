// SPDX-License-Identifier: Apache-2.0
#include "api/memory_registry.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/handle_table.hpp"
#include "api/managed_advice.hpp"
#include "api/shared_file.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

constexpr std::size_t page_alignment = 4096;                // bytes, as with NVIDIA's driver
constexpr std::size_t fill_wholly = std::size_t(64) << 20;  // bytes
constexpr std::size_t fill_at_least = std::size_t(1) << 20;

// A context's device memory, charged to its device.
struct DeviceCharge : BlockCharge {
  DeviceCharge(Device& of, std::size_t its_bytes) : device(of), bytes(its_bytes) {
    check_that(device.reserve(bytes), CUDA_ERROR_OUT_OF_MEMORY);
  }
  ~DeviceCharge() override { DeviceCharge::give_back(); }
  void give_back() noexcept override {
    if (!given_back.exchange(true)) device.give_back(bytes);
  }

  Device& device;
  const std::size_t bytes;
  std::atomic<bool> given_back = false;
};

void* new_memory(Block::Kind kind, std::size_t bytes) {
  // Memory of cuMemAlloc too, because its pages may move into a file (share).
  bool pages =
      kind == Block::Kind::pinned || kind == Block::Kind::managed || kind == Block::Kind::device;
  std::size_t alignment = pages ? page_alignment : device_limits::alignment;
  void* memory = nullptr;
  // At least a byte more. No block begins where another one ends, so that an access just past the
  // end is noticed.
  if (bytes <= SIZE_MAX - alignment)
    memory = std::aligned_alloc(alignment, bytes / alignment * alignment + alignment);
  check_that(memory != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
  // Variables of a module get their values next, and many take no memory before they are used.
  if (kind != Block::Kind::module) {
    std::memset(memory, undefined_byte, bytes <= fill_wholly ? bytes : fill_at_least);
  }
  return memory;
}

void* pointer_to(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + page_alignment - 1) / page_alignment * page_alignment;
}

// While it lives no device begins anything.
class Pause {
 public:
  explicit Pause(const MemoryRegistry::Devices& devices) : devices_(devices) {
    for (const auto& device : devices_) device->executor.pause();
  }
  ~Pause() {
    for (const auto& device : devices_) device->executor.resume();
  }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

  // Waits a short time for what executes. Not for long: it may wait for work that cannot begin now.
  bool is_quiet() const {
    for (int looks = 0; looks < 200; ++looks) {
      if (std::all_of(devices_.begin(), devices_.end(),
                      [](const auto& device) { return device->executor.executes_nothing(); }))
        return true;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return false;
  }

 private:
  const MemoryRegistry::Devices& devices_;
};

// The file, with what the block holds, in the place of the block's pages. Null: no memory for it.
std::shared_ptr<SharedFile> move_into_file(const Block& block) {
  const std::size_t bytes = whole_pages(block.size);
  auto file = std::make_shared<SharedFile>(block.device.ordinal, bytes);
  void* const shown = file->show(bytes, PROT_READ | PROT_WRITE);
  if (shown == nullptr) return nullptr;
  std::memcpy(shown, pointer_to(block.begin), bytes);
  munmap(shown, bytes);
  return file->show(bytes, PROT_READ | PROT_WRITE, pointer_to(block.begin)) != nullptr ? file
                                                                                       : nullptr;
}

}  // namespace

Block::Block(Kind its_kind, Device& its_device, Context* of, std::uintptr_t its_begin,
             std::size_t its_size, unsigned its_flags)
    : kind(its_kind),
      device(its_device),
      context(of),
      begin(its_begin),
      size(its_size),
      host_flags(its_flags),
      id(next_id()),
      advice(its_kind == Kind::managed ? std::make_unique<ManagedAdvice>() : nullptr) {}

Block::~Block() {
  if (kind == Kind::registered || kind == Kind::mapped || kind == Kind::mapped_host) return;
  void* const memory = pointer_to(begin);
  if (kind == Kind::opened) {
    munmap(memory, whole_pages(size));
    return;
  }
  // The allocator gets back what it gave, pages of this process's own, or nothing.
  if (file != nullptr && mmap(memory, whole_pages(size), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
    return;
  std::free(memory);
}

// New memory. Where the application has freed memory without ending its registration, the system
// may give the same pages: those are left aside, and others are tried. A registration that large
// memory lies in is met a few times, and one in the heap as often as it holds the wanted size.
template <class Make>
std::shared_ptr<Block> MemoryRegistry::place(Make make) {
  constexpr int most_tries = 1 << 14;
  for (int tries = 0; tries < most_tries; ++tries) {
    std::shared_ptr<Block> block = make();
    if (insert(block)) return block;
  }
  fail(CUDA_ERROR_OUT_OF_MEMORY);
}

std::shared_ptr<Block> MemoryRegistry::allocate(Block::Kind kind, Context& context,
                                                std::size_t bytes, unsigned host_flags) {
  std::shared_ptr<BlockCharge> charge;
  if (kind != Block::Kind::pinned) charge = std::make_shared<DeviceCharge>(context.device, bytes);
  auto block = place([&] {
    return std::make_shared<Block>(kind, context.device, &context,
                                   reinterpret_cast<std::uintptr_t>(new_memory(kind, bytes)), bytes,
                                   host_flags);
  });
  block->charge = std::move(charge);
  return block;
}

std::shared_ptr<Block> MemoryRegistry::allocate_charged(Block::Kind kind, Device& device,
                                                        std::size_t bytes,
                                                        std::shared_ptr<BlockCharge> charge) {
  auto block = place([&] {
    return std::make_shared<Block>(
        kind, device, nullptr, reinterpret_cast<std::uintptr_t>(new_memory(kind, bytes)), bytes, 0);
  });
  block->charge = std::move(charge);
  return block;
}

void MemoryRegistry::add_mapped(Device& device, std::uintptr_t begin, std::size_t bytes,
                                bool is_of_host) {
  const auto block = std::make_shared<Block>(
      is_of_host ? Block::Kind::mapped_host : Block::Kind::mapped, device, nullptr, begin, bytes,
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  check_that(insert(block), CUDA_ERROR_MAP_FAILED);
}

std::shared_ptr<Block> MemoryRegistry::add_opened(Context& context,
                                                  std::shared_ptr<SharedFile> file,
                                                  std::size_t bytes) {
  auto block = place([&] {
    void* const shown = file->show(whole_pages(bytes), PROT_READ | PROT_WRITE);
    check_that(shown != nullptr, CUDA_ERROR_MAP_FAILED);
    return std::make_shared<Block>(Block::Kind::opened, context.device, &context,
                                   reinterpret_cast<std::uintptr_t>(shown), bytes, 0);
  });
  block->file = std::move(file);
  block->opens = 1;
  return block;
}

std::shared_lock<std::shared_mutex> MemoryRegistry::stay() const {
  std::lock_guard behind_who_moves(turnstile_);
  return std::shared_lock(moving_);
}

std::shared_ptr<SharedFile> MemoryRegistry::share(Block& block) {
  for (bool done = false; !done;) {
    for (const auto& device : devices_)
      device->executor.wait(device->executor.pending_everywhere());
    const Pause pause(devices_);
    if (!pause.is_quiet()) continue;
    std::lock_guard next(turnstile_);
    std::unique_lock lock(moving_);
    if (block.file == nullptr) block.file = move_into_file(block);
    done = true;
  }
  check_that(block.file != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
  return block.file;
}

// False: a registration covers a part of it, and holds the block from now on.
bool MemoryRegistry::insert(const std::shared_ptr<Block>& block) {
  std::unique_lock lock(mutex_);
  if (block->context != nullptr) block->context->check_alive();
  auto before = blocks_.lower_bound(block->begin + block->size);
  if (before != blocks_.begin()) {
    Block& other = *std::prev(before)->second;
    if (other.kind == Block::Kind::registered && other.begin + other.size > block->begin) {
      other.covered.push_back(block);
      return false;
    }
  }
  map_.add({block->begin, block->begin + block->size});
  blocks_.emplace(block->begin, block);
  return true;
}

void MemoryRegistry::add_registered(Context& context, std::uintptr_t begin, std::size_t bytes,
                                    unsigned host_flags) {
  check_value(begin != 0 && bytes != 0 && bytes <= SIZE_MAX - begin);
  auto block = std::make_shared<Block>(Block::Kind::registered, context.device, &context, begin,
                                       bytes, host_flags);
  std::unique_lock lock(mutex_);
  context.check_alive();
  const auto next = blocks_.lower_bound(begin + bytes);
  if (next != blocks_.begin()) {
    const Block& last = *std::prev(next)->second;
    check_that(last.begin + last.size <= begin, last.kind == Block::Kind::registered
                                                    ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                                    : CUDA_ERROR_INVALID_VALUE);
  }
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

bool MemoryRegistry::holds_any(std::uintptr_t begin, std::size_t bytes) const {
  std::shared_lock lock(mutex_);
  const auto after = blocks_.lower_bound(begin + bytes);
  if (after == blocks_.begin()) return false;
  const Block& last = *std::prev(after)->second;
  return last.begin + last.size > begin;
}

std::shared_ptr<Block> MemoryRegistry::find_if(
    const std::function<bool(const Block&)>& chosen) const {
  std::shared_lock lock(mutex_);
  const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const auto& entry) { return chosen(*entry.second); });
  return found == blocks_.end() ? nullptr : found->second;
}

std::shared_ptr<Block> MemoryRegistry::check_range(std::uintptr_t address,
                                                   std::size_t bytes) const {
  std::shared_ptr<Block> block = find(address);
  check_value(block != nullptr && block->holds(address, bytes));
  return block;
}

// A command that runs now may still use the memory, on whichever device: each holds it until then.
void MemoryRegistry::retire(const std::shared_ptr<Block>& block) {
  for (const auto& device : devices_) device->executor.retire(block);
}

bool MemoryRegistry::remove(const Block& block, const char* by) {
  std::shared_ptr<Block> removed;
  {
    std::unique_lock lock(mutex_);
    auto found = blocks_.find(block.begin);
    if (found == blocks_.end() || found->second.get() != &block) return false;
    removed = std::move(found->second);
    blocks_.erase(found);
    map_.remove(removed->begin, by);
  }
  if (removed->charge != nullptr) removed->charge->give_back();
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
  for (const auto& block : removed) {
    if (block->charge != nullptr) block->charge->give_back();
    retire(block);
  }
}

void MemoryRegistry::remove_all_of(const Context& context) {
  remove_where([&](const Block& block) { return block.context == &context; });
}

void MemoryRegistry::remove_everything() {
  remove_where([](const Block&) { return true; });
}

}  // namespace ctxbroker::software
