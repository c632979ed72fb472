// SPDX-License-Identifier: Apache-2.0
#include "api/copy.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/fault_text.hpp"
#include "api/process.hpp"
#include "api/status.hpp"
#include "exec/fault.hpp"
#include "memory/owner.hpp"

namespace ctxbroker::software {
namespace {

// Pageable sources up to this are copied aside so that the call need not wait; bytes.
constexpr std::size_t stage_at_most = std::size_t(16) << 20;

std::byte* bytes_at(std::uintptr_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// From the first byte of a surface to its last.
std::size_t span_of(const Surface& surface, Extent extent) {
  std::size_t rows = 0, slices = 0, span = 0;
  check_value(!__builtin_mul_overflow(extent.height - 1, surface.pitch, &rows) &&
              !__builtin_mul_overflow(extent.depth - 1, surface.slice, &slices) &&
              !__builtin_add_overflow(rows, extent.width, &span) &&
              !__builtin_add_overflow(span, slices, &span));
  return span;
}

// What is behind a surface; null for pageable memory.
std::shared_ptr<const void> owner_of(const Surface& surface, std::size_t span) {
  const MemoryRegistry& memory = Process::instance().memory;
  if (surface.side == Side::array) return surface.array;
  if (surface.side == Side::device) return memory.check_range(surface.address, span);
  check_value(surface.address != 0);
  std::shared_ptr<Block> block = memory.find(surface.address);
  if (block != nullptr && !block->holds(surface.address, span)) {
    check_value(!block->on_device());
    return nullptr;  // begins in pinned memory and leaves it: treated as pageable
  }
  return block;
}

enum class HostSide : std::uint8_t {
  none,     // device memory
  managed,  // device memory that the host can read
  own,      // pageable, pinned, registered
};

HostSide host_side_of(const Surface& surface, bool is_pageable) {
  if (is_pageable) return HostSide::own;
  if (surface.side == Side::array) return HostSide::none;
  const std::shared_ptr<Block> block = Process::instance().memory.find(surface.address);
  if (block == nullptr || !block->on_host()) return HostSide::none;
  return block->on_device() ? HostSide::managed : HostSide::own;
}

// By CU_POINTER_ATTRIBUTE_SYNC_MEMOPS.
bool always_synchronises(const Surface& surface) {
  if (surface.side == Side::array) return false;
  const std::shared_ptr<Block> block = Process::instance().memory.find(surface.address);
  return block != nullptr && block->sync_memops;
}

// The memory of a surface, from the call to the end of the work. What is freed in between stays
// whole, so that nobody else gets the address, but the work may touch it no more than a kernel may.
class HeldMemory {
 public:
  // CUDA_ERROR_INVALID_VALUE.
  HeldMemory(const Surface& surface, Extent extent)
      : begin_(surface.address),
        bytes_(span_of(surface, extent)),
        owner_(owner_of(surface, bytes_)),
        caller_(current_owner()),
        has_address_(owner_ != nullptr && surface.side != Side::array),
        host_(host_side_of(surface, owner_ == nullptr)) {}

  std::size_t bytes() const noexcept { return bytes_; }
  bool is_pageable() const noexcept { return owner_ == nullptr; }
  bool is_host() const noexcept { return host_ == HostSide::own; }
  bool is_device_only() const noexcept { return host_ == HostSide::none; }

  // Of pageable memory: reads it aside. Where it is then.
  std::uintptr_t stage() {
    const std::byte* from = bytes_at(begin_);
    auto staged = std::make_shared<const std::vector<std::byte>>(from, from + bytes_);
    owner_ = staged;
    return reinterpret_cast<std::uintptr_t>(staged->data());
  }

  // When the work comes to it. By address, as for kernels: mapped memory may have been mapped anew.
  CUresult check(const char* work) const {
    if (!has_address_) return CUDA_SUCCESS;
    const std::optional<AddressRange> live = Process::instance().memory.map().find(begin_);
    if (live && live->end - begin_ >= bytes_) return CUDA_SUCCESS;
    char text[128];
    std::snprintf(text, sizeof(text), "%s: access of %zu bytes at illegal address 0x%" PRIxPTR,
                  work, bytes_, begin_);
    const MemoryMap& map = Process::instance().memory.map();
    remember_fault(text + exec::describe_surroundings(map, begin_, bytes_), caller_);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }

 private:
  std::uintptr_t begin_;
  std::size_t bytes_;
  std::shared_ptr<const void> owner_;
  const char* caller_;
  bool has_address_;  // that a kernel could use too
  HostSide host_;
};

void copy_rows(const Surface& to, const Surface& from, Extent extent) {
  bool dense = to.pitch == extent.width && from.pitch == extent.width;
  for (std::size_t slice = 0; slice < extent.depth; ++slice) {
    std::byte* target = bytes_at(to.address + slice * to.slice);
    const std::byte* source = bytes_at(from.address + slice * from.slice);
    if (dense) {
      std::memmove(target, source, extent.width * extent.height);
      continue;
    }
    for (std::size_t row = 0; row < extent.height; ++row)
      std::memmove(target + row * to.pitch, source + row * from.pitch, extent.width);
  }
}

void fill_row(std::byte* row, Pattern pattern, std::size_t bytes) {
  if (pattern.bytes == 1) {
    std::memset(row, static_cast<int>(pattern.value & 0xFF), bytes);
    return;
  }
#ifdef __SANITIZE_THREAD__
  // A kernel may poll the word, as it may on a GPU: see how kernels read (fetch in exec/level).
  if (bytes == sizeof(std::uint32_t) && pattern.bytes == sizeof(std::uint32_t)) {
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(row),
                     static_cast<std::uint32_t>(pattern.value), __ATOMIC_RELAXED);
    return;
  }
#endif
  for (std::size_t at = 0; at < bytes; at += pattern.bytes)
    std::memcpy(row + at, &pattern.value, pattern.bytes);  // little-endian
}

std::function<CUresult()> copying(const Surface& to, HeldMemory target, const Surface& from,
                                  HeldMemory source, Extent extent) {
  return [=, target = std::move(target), source = std::move(source)] {
    CUresult status = source.check("copy");
    if (status == CUDA_SUCCESS) status = target.check("copy");
    if (status == CUDA_SUCCESS) copy_rows(to, from, extent);
    return status;
  };
}

}  // namespace

CUresult copy(const std::shared_ptr<Stream>& stream, Surface to, Surface from, Extent extent,
              Waiting waiting) {
  stream->context.check_alive();
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_SUCCESS;
  if (extent.height == 1) to.pitch = from.pitch = extent.width;
  HeldMemory source(from, extent), target(to, extent);

  Executor& executor = stream->context.device.executor;
  bool captured = is_captured(*stream);
  if (waiting == Waiting::done) {
    refuse_in_capture(*stream, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    check_use(*stream);
  }
  // As NVIDIA's page on the synchronisation behaviour of the API has it.
  const bool between_host_memory = source.is_host() && target.is_host();
  const bool only_on_device = source.is_device_only() && target.is_device_only() &&
                              !always_synchronises(to) && !always_synchronises(from);
  // A graph's node copies when it is launched, from and to pageable memory too.
  bool wait =
      !captured && (waiting == Waiting::done || target.is_pageable() || between_host_memory ||
                    (waiting == Waiting::unless_on_device && !only_on_device));
  if (wait && executor.ahead_of_new(*stream).empty()) {
    const auto stays = Process::instance().memory.stay();
    copy_rows(to, from, extent);  // nothing to wait behind: no need for the other thread
    return Process::fault();
  }
  if (!wait && !captured && source.is_pageable()) {
    if (source.bytes() <= stage_at_most)
      from.address = source.stage();
    else
      wait = true;
  }
  auto command = std::make_shared<Command>();
  command->kind = Command::Kind::transfer;
  command->node_type = CU_GRAPH_NODE_TYPE_MEMCPY;
  command->work = copying(to, std::move(target), from, std::move(source), extent);
  enqueue(stream, command);
  return wait ? wait_for(stream->context, {command}) : CUDA_SUCCESS;
}

std::function<CUresult()> copy_work(const ShapedCopy& shaped) {
  Surface to = shaped.to, from = shaped.from;
  const Extent extent = shaped.extent;
  check_value(extent.width != 0 && extent.height != 0 && extent.depth != 0);
  if (extent.height == 1) to.pitch = from.pitch = extent.width;
  HeldMemory source(from, extent), target(to, extent);
  return copying(to, std::move(target), from, std::move(source), extent);
}

std::function<CUresult()> fill_work(CUdeviceptr address, std::size_t pitch, Pattern pattern,
                                    Extent extent) {
  check_value(address % pattern.bytes == 0);
  if (extent.height == 1) pitch = extent.width;
  check_value(pitch % pattern.bytes == 0 && pitch >= extent.width);
  HeldMemory target({Side::device, address, pitch, 0, nullptr}, extent);
  return [=, target = std::move(target)] {
    if (CUresult status = target.check("memset"); status != CUDA_SUCCESS) return status;
    for (std::size_t row = 0; row < extent.height; ++row)
      fill_row(bytes_at(address + row * pitch), pattern, extent.width);
    return CUDA_SUCCESS;
  };
}

CUresult fill(const std::shared_ptr<Stream>& stream, CUdeviceptr address, std::size_t pitch,
              Pattern pattern, Extent extent, Waiting waiting) {
  stream->context.check_alive();
  check_value(address % pattern.bytes == 0);
  if (extent.width == 0 || extent.height == 0) return CUDA_SUCCESS;
  auto command = std::make_shared<Command>();
  command->kind = Command::Kind::transfer;
  command->node_type = CU_GRAPH_NODE_TYPE_MEMSET;
  command->work = fill_work(address, pitch, pattern, extent);
  const std::shared_ptr<Block> block = Process::instance().memory.find(address);
  const bool wait = waiting != Waiting::as_driver && !is_captured(*stream) && block != nullptr &&
                    (block->on_host() || block->sync_memops);
  if (wait && stream->context.device.executor.ahead_of_new(*stream).empty()) {
    check_use(*stream);
    const auto stays = Process::instance().memory.stay();
    return command->work();  // nothing to wait behind: no need for the other thread
  }
  enqueue(stream, command);
  return wait ? wait_for(stream->context, {command}) : CUDA_SUCCESS;
}

}  // namespace ctxbroker::software
