// SPDX-License-Identifier: Apache-2.0
// Every block of memory the driver knows: allocated on a device, pinned, registered, of modules.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "api/cuda_api.hpp"
#include "memory/memory_map.hpp"

namespace ctxbroker::software {

struct Context;
class Device;
class ManagedAdvice;
class SharedFile;

// The bytes that a block takes from its device or its memory pool. They are given back once, at the
// latest with the block.
struct BlockCharge {
  virtual ~BlockCharge() = default;
  virtual void give_back() noexcept = 0;
};

// The byte that fills memory until it is first written.
inline constexpr int undefined_byte = 0xCD;

struct Block {
  enum class Kind : std::uint8_t {
    device,       // cuMemAlloc
    module,       // a module's variables
    managed,      // cuMemAllocManaged
    pooled,       // cuMemAllocAsync: a pool's
    graph,        // a graph's own
    mapped,       // cuMemMap, made accessible
    opened,       // another process's, cuIpcOpenMemHandle
    pinned,       // cuMemAllocHost, cuMemHostAlloc
    registered,   // the application's memory, cuMemHostRegister
    mapped_host,  // host memory, cuMemMap, made accessible to a device
  };

  Block(Kind kind, Device& device, Context* context, std::uintptr_t begin, std::size_t size,
        unsigned host_flags);
  ~Block();  // frees what the driver allocated
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const Kind kind;
  Device& device;
  Context* const context;  // it dies with; null: of a pool or mapped
  const std::uintptr_t begin;
  const std::size_t size;     // bytes, as asked for
  const unsigned host_flags;  // of host memory
  const std::uint64_t id;
  std::shared_ptr<BlockCharge> charge;          // null: none
  std::atomic<bool> freed = false;              // by cuMemFreeAsync, which may still be to come
  std::atomic<bool> sync_memops = false;        // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  const std::unique_ptr<ManagedAdvice> advice;  // of managed memory; else null
  std::shared_ptr<SharedFile> file;             // that other processes show too; null: none does
  unsigned opens = 0;                           // of opened memory, not yet closed
  // New memory that the system gave where a registration still is, because the application has
  // freed the registered memory. Nobody uses it, and it goes with the registration.
  std::vector<std::shared_ptr<Block>> covered;

  bool on_device() const noexcept {
    return kind != Kind::pinned && kind != Kind::registered && kind != Kind::mapped_host;
  }
  // The processor may use the address too.
  bool on_host() const noexcept { return !on_device() || kind == Kind::managed; }
  bool holds(std::uintptr_t address, std::size_t bytes) const noexcept {
    return address >= begin && bytes <= size && address - begin <= size - bytes;
  }
};

class MemoryRegistry {
 public:
  using Devices = std::vector<std::unique_ptr<Device>>;

  // `devices` are those of the process. They outlive the registry.
  explicit MemoryRegistry(const Devices& devices) : devices_(devices) {}

  // New memory, filled with a pattern that is not zero (of more than 64 MiB: its first MiB), so
  // that whoever reads what was never written notices. CUDA_ERROR_OUT_OF_MEMORY.
  std::shared_ptr<Block> allocate(Block::Kind kind, Context& context, std::size_t bytes,
                                  unsigned host_flags);
  // The same, with the caller's charge and no context.
  std::shared_ptr<Block> allocate_charged(Block::Kind kind, Device& device, std::size_t bytes,
                                          std::shared_ptr<BlockCharge> charge);
  // Memory that somebody else holds.
  void add_mapped(Device& device, std::uintptr_t begin, std::size_t bytes, bool is_of_host);
  // Adds memory that another process has shared. Fails with CUDA_ERROR_MAP_FAILED.
  std::shared_ptr<Block> add_opened(Context& context, std::shared_ptr<SharedFile> file,
                                    std::size_t bytes);
  // The application's memory. CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED where it overlaps another
  // registration, and CUDA_ERROR_INVALID_VALUE where it overlaps memory of the driver's.
  void add_registered(Context& context, std::uintptr_t begin, std::size_t bytes,
                      unsigned host_flags);

  // Adds the heap of kernels, which they may use although it is not a block.
  void add_heap(AddressRange range) { map_.add(range); }
  void remove_heap(AddressRange range) { map_.remove(range.begin); }

  // The block that holds the address; null.
  std::shared_ptr<Block> find(std::uintptr_t address) const;
  // The block that holds the whole range; CUDA_ERROR_INVALID_VALUE.
  std::shared_ptr<Block> check_range(std::uintptr_t address, std::size_t bytes) const;

  // Returns whether something holds a part of the range.
  bool holds_any(std::uintptr_t begin, std::size_t bytes) const;
  // The first block that `chosen` is true for; null.
  std::shared_ptr<Block> find_if(const std::function<bool(const Block&)>& chosen) const;

  // Moves the pages of memory of cuMemAlloc into a file, at the same address, so that other
  // processes can show them too. Waits until no device executes anything.
  std::shared_ptr<SharedFile> share(Block& block);
  // Whoever touches device memory on another thread than a device's holds this meanwhile.
  std::shared_lock<std::shared_mutex> stay() const;

  // Takes the block out. Its memory goes when no command uses it any more. False when another
  // thread was first. `by`: whose code freed it.
  bool remove(const Block& block, const char* by = current_owner());
  void remove_all_of(const Context& context);
  void remove_everything();

  const MemoryMap& map() const noexcept { return map_; }

 private:
  template <class Make>
  std::shared_ptr<Block> place(Make make);
  bool insert(const std::shared_ptr<Block>& block);
  void retire(const std::shared_ptr<Block>& block);
  template <class Chosen>
  void remove_where(Chosen chosen);

  const Devices& devices_;
  mutable std::mutex turnstile_;      // so that readers do not hold up who moves for ever
  mutable std::shared_mutex moving_;  // alone while pages move
  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, std::shared_ptr<Block>> blocks_;
  MemoryMap map_;
};

}  // namespace ctxbroker::software
