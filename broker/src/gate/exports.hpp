// SPDX-License-Identifier: Apache-2.0
// Physical memory that tenants have exported. It lives as long as what was given out for it does,
// also when its tenant has released it, and so it counts as long.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "ctxbroker/tenant_id.hpp"
#include "ledger/charge.hpp"

namespace ctxbroker::detail {

// Tells which files are still open, in this process or in another, or on their way to one. Watching
// a file keeps it neither open nor closed. Not for several threads at once.
class OpenFiles {
 public:
  OpenFiles() noexcept = default;
  ~OpenFiles();
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  // Begins to watch the file under a number that is not 0. False: the system watches no such file.
  bool watch(int file, std::uint64_t number) noexcept;
  // Returns whether all copies of the file are closed. False also if the system does not tell.
  bool is_closed(std::uint64_t number) const noexcept;
  // Asks the system which files are open. Until then, is_closed answers as before.
  void look() noexcept;

 private:
  int epoll_ = -1;
  bool known_ = false;
  std::vector<std::uint64_t> open_;  // the numbers of the open files
};

// The exported memory of all tenants. There is one object for the process, because a descriptor is
// valid in all of it. Any thread.
class Exports {
 public:
  using Fabric = std::array<unsigned char, 64>;  // a handle of CU_MEM_HANDLE_TYPE_FABRIC

  static Exports& all();

  // The memory counts until every copy of the descriptor is closed. If the system does not tell
  // that, it counts until the tenant ends. Throws std::bad_alloc.
  void add(TenantId tenant, std::shared_ptr<const Charge> charge, int file);
  // The memory counts until the tenant ends, because nobody sees where the handle is kept. Throws
  // std::bad_alloc.
  void add(TenantId tenant, std::shared_ptr<const Charge> charge, const Fabric& handle);

  // The memory that an import may be. The driver does not tell which memory it is. A descriptor
  // does, while the one that was exported is open. Otherwise the import may be whatever was
  // exported with a descriptor that is closed.
  struct Found {
    Charges own;  // of the tenant's memory
    Charges of_neighbours;
  };
  // Throws std::bad_alloc.
  Found find(TenantId tenant, int file);
  Found find(TenantId tenant, const Fabric& handle);

  // Memory whose descriptors are closed counts no longer.
  void forget_closed() noexcept;
  // Nothing of the tenant's counts any longer.
  void forget(TenantId tenant) noexcept;

 private:
  struct Export {
    TenantId tenant;
    std::shared_ptr<const Charge> charge;
    int file = -1;             // the descriptor that the driver gave; -1: it gave a handle
    std::uint64_t number = 0;  // of the watched file; 0: it is not watched
    Fabric handle{};
  };
  void forget_closed_ones() noexcept;

  std::mutex mutex_;
  std::vector<Export> exports_;
  OpenFiles files_;
  std::uint64_t last_number_ = 0;
};

}  // namespace ctxbroker::detail
