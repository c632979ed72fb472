// SPDX-License-Identifier: Apache-2.0
#include "api/virtual_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "api/device.hpp"
#include "api/process.hpp"
#include "api/shared_file.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

void* pointer_to(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

bool whole_units(std::uint64_t bytes) {
  return bytes % VirtualMemory::granularity == 0;
}

// The memory of the machine, in bytes.
std::size_t host_memory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// New addresses. Where the application has freed memory without ending its registration, the
// system may give the same addresses: those are left aside, and others are tried.
std::uintptr_t new_addresses(std::size_t bytes) {
  constexpr int most_tries = 256;
  std::vector<void*> aside;
  std::uintptr_t found = 0;
  for (int tries = 0; tries < most_tries && found == 0; ++tries) {
    void* const memory =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) break;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    if (!Process::instance().memory.holds_any(begin, bytes)) {
      found = begin;
    } else {
      aside.push_back(memory);
    }
  }
  for (void* const one : aside) munmap(one, bytes);
  check_that(found != 0, CUDA_ERROR_OUT_OF_MEMORY);
  return found;
}

// Addresses without memory; over whatever is mapped there.
bool make_empty(std::uintptr_t begin, std::size_t bytes) {
  return mmap(pointer_to(begin), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

CUmemAllocationProp shareable_on(CUdevice device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

}  // namespace

struct VirtualMemory::Physical {
  Physical(Device& of, std::size_t its_bytes, const CUmemAllocationProp& its_properties)
      : device(of), bytes(its_bytes), properties(its_properties), handle(next_id()) {
    if (is_of_host()) {
      check_that(bytes <= host_memory(), CUDA_ERROR_OUT_OF_MEMORY);
    } else {
      check_that(device.reserve(bytes), CUDA_ERROR_OUT_OF_MEMORY);
      charged = bytes;
    }
    try {
      file = properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE
                 ? SharedFile::without_name(device.ordinal, bytes)
                 : std::make_shared<SharedFile>(device.ordinal, bytes);
    } catch (...) {
      device.give_back(charged);
      throw;
    }
  }
  // Another process's, whose device it is charged to there.
  Physical(Device& of, std::shared_ptr<SharedFile> its_file)
      : device(of),
        bytes(its_file->bytes()),
        properties(shareable_on(of.ordinal)),
        handle(next_id()),
        file(std::move(its_file)) {}
  ~Physical() { device.give_back(charged); }
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  bool is_of_host() const { return is_host(properties.location); }

  Device& device;
  const std::size_t bytes;
  const CUmemAllocationProp properties;
  const CUmemGenericAllocationHandle handle;
  std::shared_ptr<SharedFile> file;
  std::size_t charged = 0;  // bytes
};

bool VirtualMemory::Mapping::accessible() const {
  return std::any_of(access.begin(), access.end(), [](const auto& entry) {
    return entry.second == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  });
}

bool VirtualMemory::Mapping::accessible_to_devices() const {
  return std::any_of(access.begin(), access.end(), [](const auto& entry) {
    return entry.first != host && entry.second == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  });
}

CUdeviceptr VirtualMemory::reserve(std::size_t bytes, std::size_t alignment) {
  constexpr std::size_t most = std::size_t(1) << 46;
  alignment = std::max(alignment, granularity);
  check_value((alignment & (alignment - 1)) == 0);
  check_value(bytes != 0 && bytes % static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) == 0);
  check_that(bytes <= most && alignment <= most, CUDA_ERROR_OUT_OF_MEMORY);
  const std::uintptr_t got = new_addresses(bytes + alignment);
  std::uintptr_t begin = (got + alignment - 1) / alignment * alignment;
  if (begin != got) munmap(pointer_to(got), begin - got);
  munmap(pointer_to(begin + bytes), alignment - (begin - got));
  std::lock_guard lock(mutex_);
  reserved_[begin] = bytes;
  return begin;
}

void VirtualMemory::free(CUdeviceptr begin, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  auto found = reserved_.find(begin);
  check_value(found != reserved_.end() && found->second == bytes);
  auto mapped = mappings_.lower_bound(begin);
  check_value(mapped == mappings_.end() || mapped->first >= begin + bytes);
  munmap(pointer_to(begin), bytes);
  reserved_.erase(found);
}

CUmemGenericAllocationHandle VirtualMemory::create(Device& device, std::size_t bytes,
                                                   const CUmemAllocationProp& properties) {
  check_value(bytes != 0 && whole_units(bytes));
  return enter(std::make_shared<Physical>(device, bytes, properties));
}

CUmemGenericAllocationHandle VirtualMemory::enter(const std::shared_ptr<Physical>& memory) {
  std::lock_guard lock(mutex_);
  handles_[memory->handle] = {memory};
  return memory->handle;
}

int VirtualMemory::export_descriptor(CUmemGenericAllocationHandle handle) {
  std::lock_guard lock(mutex_);
  const Physical& memory = *find(handle).memory;
  check_value(memory.properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  return memory.file->duplicate();
}

CUmemGenericAllocationHandle VirtualMemory::import_descriptor(int descriptor) {
  std::shared_ptr<SharedFile> file = SharedFile::of_descriptor(descriptor);
  check_value(file->bytes() != 0 && whole_units(file->bytes()));
  Device& device = find_device(file->device());
  return enter(std::make_shared<Physical>(device, std::move(file)));
}

VirtualMemory::Handle& VirtualMemory::find(CUmemGenericAllocationHandle handle) {
  auto found = handles_.find(handle);
  check_value(found != handles_.end());
  return found->second;
}

void VirtualMemory::release(CUmemGenericAllocationHandle handle) {
  std::shared_ptr<Physical> memory;  // ends after the lock
  std::lock_guard lock(mutex_);
  Handle& found = find(handle);
  if (--found.uses != 0) return;
  memory = std::move(found.memory);
  handles_.erase(handle);
}

CUmemAllocationProp VirtualMemory::properties(CUmemGenericAllocationHandle handle) const {
  std::lock_guard lock(mutex_);
  auto found = handles_.find(handle);
  check_value(found != handles_.end());
  return found->second.memory->properties;
}

VirtualMemory::Mappings::const_iterator VirtualMemory::mapping_at(std::uintptr_t address) const {
  auto after = mappings_.upper_bound(address);
  check_value(after != mappings_.begin());
  auto found = std::prev(after);
  check_value(address - found->first < found->second.bytes);
  return found;
}

CUmemGenericAllocationHandle VirtualMemory::retain(std::uintptr_t address) {
  std::lock_guard lock(mutex_);
  const std::shared_ptr<Physical>& memory = mapping_at(address)->second.memory;
  auto [found, is_new] = handles_.try_emplace(memory->handle, Handle{memory});
  if (!is_new) ++found->second.uses;
  return memory->handle;
}

void VirtualMemory::check_reserved(CUdeviceptr begin, std::size_t bytes) const {
  check_value(bytes != 0 && whole_units(bytes) && whole_units(begin));
  auto after = reserved_.upper_bound(begin);
  check_value(after != reserved_.begin());
  auto range = std::prev(after);
  check_value(begin - range->first <= range->second &&
              bytes <= range->second - (begin - range->first));
}

void VirtualMemory::map(CUdeviceptr begin, std::size_t bytes, std::size_t offset,
                        CUmemGenericAllocationHandle handle) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Physical> memory = find(handle).memory;
  check_value(offset == 0);
  check_that(bytes <= memory->bytes, CUDA_ERROR_NOT_SUPPORTED);
  check_reserved(begin, bytes);
  auto next = mappings_.lower_bound(begin);
  check_value(next == mappings_.end() || next->first >= begin + bytes);
  if (next != mappings_.begin()) {
    auto previous = std::prev(next);
    check_value(previous->first + previous->second.bytes <= begin);
  }
  check_that(memory->file->show(bytes, PROT_NONE, pointer_to(begin)) != nullptr,
             CUDA_ERROR_OUT_OF_MEMORY);
  mappings_[begin] = {bytes, std::move(memory), {}};
}

void VirtualMemory::check_whole(CUdeviceptr begin, std::size_t bytes) const {
  check_value(bytes != 0 && bytes <= UINTPTR_MAX - begin);
  std::uintptr_t at = begin;
  while (at < begin + bytes) {
    auto found = mappings_.find(at);
    check_value(found != mappings_.end());
    at += found->second.bytes;
  }
  check_value(at == begin + bytes);
}

void VirtualMemory::unmap(CUdeviceptr begin, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  check_reserved(begin, bytes);
  // Mappings end as wholes; where there is none, there is nothing to do.
  auto first = mappings_.lower_bound(begin);
  if (first != mappings_.begin()) {
    auto before = std::prev(first);
    check_value(before->first + before->second.bytes <= begin);
  }
  auto after = mappings_.lower_bound(begin + bytes);
  if (after != first) {
    auto last = std::prev(after);
    check_value(last->first + last->second.bytes <= begin + bytes);
  }
  MemoryRegistry& registry = Process::instance().memory;
  for (auto entry = first; entry != mappings_.end() && entry->first < begin + bytes;
       entry = mappings_.erase(entry))
    if (std::shared_ptr<Block> block = registry.find(entry->first)) registry.remove(*block);
  check_that(make_empty(begin, bytes), CUDA_ERROR_OUT_OF_MEMORY);
}

void VirtualMemory::set_access(CUdeviceptr begin, std::size_t bytes, CUdevice who,
                               CUmemAccess_flags flags) {
  std::lock_guard lock(mutex_);
  check_whole(begin, bytes);
  for (auto entry = mappings_.find(begin); entry != mappings_.end() && entry->first < begin + bytes;
       ++entry)
    check_value(who != host || entry->second.memory->is_of_host());
  MemoryRegistry& registry = Process::instance().memory;
  for (auto entry = mappings_.find(begin); entry != mappings_.end() && entry->first < begin + bytes;
       ++entry) {
    Mapping& mapping = entry->second;
    const bool before = mapping.accessible(), on_devices = mapping.accessible_to_devices();
    mapping.access[who] = flags;
    const bool now = mapping.accessible();
    check_that(now == before || mprotect(pointer_to(entry->first), mapping.bytes,
                                         now ? PROT_READ | PROT_WRITE : PROT_NONE) == 0,
               CUDA_ERROR_OUT_OF_MEMORY);
    if (mapping.accessible_to_devices() == on_devices) continue;
    if (!on_devices)
      registry.add_mapped(mapping.memory->device, entry->first, mapping.bytes,
                          mapping.memory->is_of_host());
    else if (std::shared_ptr<Block> block = registry.find(entry->first))
      registry.remove(*block);
  }
}

std::optional<VirtualMemory::Place> VirtualMemory::place(std::uintptr_t address) const {
  std::lock_guard lock(mutex_);
  auto reserved = reserved_.upper_bound(address);
  if (reserved == reserved_.begin()) return std::nullopt;
  --reserved;
  if (address - reserved->first >= reserved->second) return std::nullopt;
  Place place;
  place.begin = reserved->first;
  place.bytes = reserved->second;
  auto mapped = mappings_.upper_bound(address);
  if (mapped == mappings_.begin()) return place;
  --mapped;
  if (address - mapped->first >= mapped->second.bytes) return place;
  place.mapping_begin = mapped->first;
  place.mapping_bytes = mapped->second.bytes;
  place.device = &mapped->second.memory->device;
  place.memory = mapped->second.memory->handle;
  place.handle_types = mapped->second.memory->properties.requestedHandleTypes;
  return place;
}

bool VirtualMemory::is_of_host(CUdeviceptr address) const {
  std::lock_guard lock(mutex_);
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return false;
  const auto& [begin, mapping] = *std::prev(after);
  return address - begin < mapping.bytes && mapping.memory->is_of_host();
}

void VirtualMemory::forget() noexcept {
  std::lock_guard lock(mutex_);
  mappings_.clear();
  handles_.clear();
  for (const auto& [begin, bytes] : reserved_) munmap(pointer_to(begin), bytes);
  reserved_.clear();
}

CUmemAccess_flags VirtualMemory::access(CUdeviceptr address, CUdevice who) const {
  std::lock_guard lock(mutex_);
  const auto block = Process::instance().memory.find(address);
  const bool is_allocated = block != nullptr && block->kind != Block::Kind::mapped &&
                            block->kind != Block::Kind::mapped_host;
  if (is_allocated) return CU_MEM_ACCESS_FLAGS_PROT_NONE;  // as an H200 answers
  const auto& access = mapping_at(address)->second.access;
  auto found = access.find(who);
  return found == access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : found->second;
}

}  // namespace ctxbroker::software
