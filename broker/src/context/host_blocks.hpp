// SPDX-License-Identifier: Apache-2.0
// Host memory that CUDA copies from and to without staging: Broker::host_memory and
// Broker::register_memory.
//
// A block is registered once, in the primary context of one device, for all contexts of the
// process. Registering holds up all work on the devices, and ending a registration waits for all
// kernels. So neither is done in a job or in a real-time session. A block registers when it is
// made; if no device is in use yet, when a graph is made; and after the loss of the primary
// context, when the host polls. It unregisters when nobody uses it and nothing runs on the device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "context/host_pages.hpp"
#include "context/lease_table.hpp"
#include "context/tenant_identity.hpp"
#include "process/maker.hpp"

namespace ctxbroker::detail {

class HostBlocks;

// Shared by the host's object and by the jobs that use it. Any thread.
class HostBlock : public std::enable_shared_from_this<HostBlock> {
 public:
  HostBlock(std::weak_ptr<HostBlocks> owner, std::shared_ptr<HostPages> pages) noexcept
      : owner_(std::move(owner)), pages_(std::move(pages)) {}
  ~HostBlock();
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  const std::shared_ptr<HostPages>& pages() const noexcept { return pages_; }
  // False: a forked process has this copy.
  bool is_in_its_process() const noexcept { return maker_.is_this_process(); }
  // Returns whether CUDA knows the memory now. While a broker is open.
  bool is_registered() const noexcept;
  // The same at any time.
  bool is_registered_now() const noexcept;
  // Ends the registration of the host's own memory. The caller owns the block, and gives it up
  // afterwards. Returns false if CUDA may still use the memory: a job has it, too, or work hangs.
  bool release() noexcept;

 private:
  friend class HostBlocks;
  // The registration, or where it was refused.
  struct Place {
    UsedDevice* device = nullptr;
    std::uint64_t generation = 0;  // of the device's primary context
  };

  const Maker maker_;
  const std::weak_ptr<HostBlocks> owner_;
  const std::shared_ptr<HostPages> pages_;
  std::atomic<UsedDevice*> device_{nullptr};
  std::atomic<std::uint64_t> generation_{0};  // of the device's primary context; 0: none
  // The end of the registration waits for work. It is not reset, because nothing looks again.
  std::atomic<bool> is_put_off_{false};
  // Under HostBlocks::registering_.
  Place refused_{};
  bool is_released_ = false;
};

// The blocks by their addresses, in order.
struct HostBlockList {
  struct Entry {
    const std::byte* begin;
    const std::byte* end;
    std::weak_ptr<HostBlock> block;
    const HostBlock* which;  // the same, also when it is at its end
  };
  std::vector<Entry> entries;

  // Returns the block that the address lies in, or null. Neither locks nor allocates.
  std::shared_ptr<HostBlock> find(const void* address) const noexcept;
};

// The blocks of one broker. Any thread.
class HostBlocks : public std::enable_shared_from_this<HostBlocks> {
 public:
  // Borrows the leases, which are null without a driver. `close` is called before they end.
  HostBlocks(LeaseTable* leases, std::shared_ptr<const TenantIdentity> host) noexcept
      : leases_(leases), host_(std::move(host)) {}

  // Makes a block of these pages, and registers it if that can be. Throws Error (invalid_argument)
  // for memory that overlaps with another block.
  std::shared_ptr<HostBlock> add(std::shared_ptr<HostPages> pages);
  // Registers the blocks that are not registered, unless a real-time session is open. A block that
  // the driver refuses is copied as other memory is, and a record says why.
  void register_all() noexcept;
  // Ends all registrations, because the broker ends. The memory stays with the host's objects.
  void close() noexcept;

  // Changes with each block that comes or goes.
  std::uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }
  // Returns the present list, with its version; null if another thread changes it now and `waits`
  // is not set.
  std::shared_ptr<const HostBlockList> list(std::uint64_t* version, bool waits) const noexcept;

 private:
  friend class HostBlock;
  using List = std::shared_ptr<const HostBlockList>;
  static constexpr std::uint64_t no_block_yet = 1;

  void forget(HostBlock& block) noexcept;
  std::vector<std::shared_ptr<HostBlock>> blocks() const;
  void register_in(UsedDevice& device, HostBlock& block) noexcept;
  bool end_registration(HostBlock& block, bool now) noexcept;

  LeaseTable* const leases_;
  const std::shared_ptr<const TenantIdentity> host_;
  std::mutex registering_;    // also held while this has blocks of others
  mutable std::mutex mutex_;  // of the next two
  List list_ = std::make_shared<const HostBlockList>();
  std::atomic<std::uint64_t> version_{no_block_yet};
};

// The blocks as a graph knows them. While blocks neither come nor go, a look costs one load.
class KnownHostBlocks {
 public:
  // `waits`: for another thread that changes the list at this moment. Otherwise, memory may be
  // taken for other memory this time.
  void update(const HostBlocks& all, bool waits) noexcept {
    if (all.version() == version_) return;
    if (auto list = all.list(&version_, waits)) list_ = std::move(list);
  }
  std::shared_ptr<HostBlock> find(const void* address) const noexcept {
    return list_ == nullptr ? nullptr : list_->find(address);
  }

 private:
  std::uint64_t version_ = 0;
  std::shared_ptr<const HostBlockList> list_;
};

}  // namespace ctxbroker::detail
