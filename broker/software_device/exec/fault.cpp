// SPDX-License-Identifier: Apache-2.0
// The slow path of memory accesses: a range that was not remembered, or a fault.
#include "exec/fault.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <optional>

#include "exec/engine.hpp"

namespace ctxbroker::software::exec {

void record_fault(Group& group, const Instr& in, std::uint32_t lane, Fault fault,
                  std::uint64_t address, std::uint32_t bytes) {
  record_access(group, in, lane, {.fault = fault, .address = address, .bytes = bytes});
}

void record_access(Group& group, const Instr& in, std::uint32_t lane, FaultRecord access) {
  access.thread = group.first_thread + lane;
  access.line = in.line;
  group.block->fault = access;
}

std::byte* read_end(Group& group, const std::byte* from, std::uint64_t inside) {
  std::byte* const end = group.block->read_end;
  std::memset(end, 0, widest_access);
  std::memcpy(end, from, inside);
  return end;
}

std::byte* resolve_address(Group& group, const Instr& in, std::uint32_t lane, std::uint64_t address,
                           std::uint32_t bytes, Access access) {
  BlockState& block = *group.block;
  if (address % bytes != 0) {
    record_access(
        group, in, lane,
        {.fault = Fault::misaligned_address, .address = address, .bytes = bytes, .access = access});
    return nullptr;
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are host addresses
  auto* memory = reinterpret_cast<std::byte*>(address);
  // The memory if the access may use it. An aligned read crosses no boundary of 16 bytes.
  const auto inside = [&](std::uint64_t begin, std::uint64_t size) -> std::byte* {
    if (address < begin || address - begin >= size) return nullptr;
    const std::uint64_t left = size - (address - begin);
    if (left >= bytes) return memory;
    return access == Access::read ? read_end(group, memory, left) : nullptr;
  };
  // Generic addresses of the lane's local memory: not remembered, since it is the lane's alone.
  const auto local = reinterpret_cast<std::uintptr_t>(group.local) + lane * group.local_stride;
  if (std::byte* found = inside(local, group.local_bytes)) return found;
  const auto shared = reinterpret_cast<std::uintptr_t>(block.shared);
  if (std::byte* found = inside(shared, block.shared_bytes)) {
    block.sites[in.site] = {shared, shared + block.shared_bytes};
    return found;
  }
  const auto parameters = reinterpret_cast<std::uintptr_t>(block.parameters);
  if (std::byte* found = inside(parameters, block.parameter_bytes)) return found;
  if (block.memory != nullptr) {
    const auto range = block.memory->find(address);
    std::byte* found = range ? inside(range->begin, range->end - range->begin) : nullptr;
    if (found != nullptr) {
      block.sites[in.site] = *range;
      return found;
    }
  }
  record_access(
      group, in, lane,
      {.fault = Fault::illegal_address, .address = address, .bytes = bytes, .access = access});
  return nullptr;
}

namespace {

constexpr std::size_t longest_text = 1024;

// The text that ends with a 0; "?" where a kernel could not read it either.
std::string text_at(const MemoryMap* memory, std::uint64_t address) {
  const auto range = memory == nullptr ? std::nullopt : memory->find(address);
  if (!range) return "?";
  // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are host addresses
  const auto* text = reinterpret_cast<const char*>(address);
  return {text, strnlen(text, std::min<std::size_t>(range->end - address, longest_text))};
}

std::string position(const char* of, const Dim3& at) {
  return std::string(of) + ": [" + std::to_string(at.x) + "," + std::to_string(at.y) + "," +
         std::to_string(at.z) + "]";
}

std::string describe_assertion(const AssertionRecord& assertion, const Dim3& block,
                               const Dim3& thread, const MemoryMap* memory) {
  return text_at(memory, assertion.file) + ":" + std::to_string(assertion.line) + ": " +
         text_at(memory, assertion.function) + ": " + position("block", block) + ", " +
         position("thread", thread) + " Assertion `" + text_at(memory, assertion.expression) +
         "` failed.";
}

std::string counted(std::uint64_t bytes) {
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

std::string hex(std::uint64_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIx64, address);
  return text;
}

std::string of_tenant(const char* owner) {
  return owner == nullptr ? "" : std::string(" of tenant ") + owner;
}

std::string describe_memory(const Allocation& memory) {
  return counted(memory.range.end - memory.range.begin) + " at " + hex(memory.range.begin) +
         of_tenant(memory.owner);
}

std::string describe_access(const FaultRecord& fault, const MemoryMap* memory) {
  constexpr const char* accesses[] = {"read", "read", "write", "atomic access"};
  constexpr const char* spaces[] = {"", "shared memory", "local memory", "the parameters"};
  const bool is_aligned = fault.fault == Fault::illegal_address;
  std::string text =
      std::string(accesses[static_cast<int>(fault.access)]) + " of " + counted(fault.bytes);
  if (fault.space != MemorySpace::global) {
    const auto offset = fault.space == MemorySpace::shared
                            ? static_cast<std::int32_t>(fault.address)
                            : static_cast<std::int64_t>(fault.address);
    text += std::string(" at ") + (is_aligned ? "illegal" : "misaligned") + " offset " +
            std::to_string(offset) + " of " + spaces[static_cast<int>(fault.space)];
    return is_aligned ? text + ", which has " + counted(fault.space_bytes) : text;
  }
  text += std::string(" at ") + (is_aligned ? "illegal" : "misaligned") + " address " +
          hex(fault.address);
  if (!is_aligned || memory == nullptr) return text;
  return text + describe_surroundings(*memory, fault.address, fault.bytes);
}

std::string describe_what(const FaultRecord& fault, const MemoryMap* memory) {
  switch (fault.fault) {
    case Fault::illegal_address:
    case Fault::misaligned_address:
      return describe_access(fault, memory);
    case Fault::trap:
      return "trap";
    case Fault::invalid_pc:
      return "calls " + hex(fault.address) +
             ", which is no function of this module with the parameters that the call passes";
    case Fault::stack_overflow:
      return "stack overflow: the calls need more than CU_LIMIT_STACK_SIZE allows "
             "(cuCtxSetLimit raises it)";
    case Fault::bad_free:
      return "free of " + hex(fault.address) +
             ", which is no block that malloc gave, or one that is free already";
    case Fault::deadlock:
      return "waits at a barrier that the rest of the block can never reach";
    case Fault::assertion:
    case Fault::stopped:
    case Fault::none:
      break;
  }
  return {};
}

}  // namespace

std::string describe_surroundings(const MemoryMap& memory, std::uint64_t address,
                                  std::uint64_t bytes) {
  constexpr std::uint64_t null_bytes = 65'536, far = std::uint64_t{1} << 30;
  if (address < null_bytes) {
    return address == 0 ? ", a null pointer" : ", " + counted(address) + " behind a null pointer";
  }
  const Surroundings around = memory.around(address);
  if (around.below && address < around.below->range.end) {
    return ", the last " + counted(address + bytes - around.below->range.end) +
           " of it past the end of " + describe_memory(*around.below);
  }
  if (around.freed) {
    const char* by = around.freed->freed_by;
    return ", in " + describe_memory(*around.freed) +
           (by == nullptr ? ", which is freed" : std::string(", which tenant ") + by + " freed");
  }
  const std::uint64_t past = around.below && address >= around.below->range.end
                                 ? address - around.below->range.end
                                 : ~std::uint64_t{0};
  const std::uint64_t before = around.above ? around.above->range.begin - address : ~past;
  if (around.below && past <= far && (!around.above || past <= before)) {
    return ", " + counted(past) + " past the end of " + describe_memory(*around.below);
  }
  if (around.above && before <= far) {
    return ", " + counted(before) + " before " + describe_memory(*around.above);
  }
  return ", which is near no memory of this device";
}

std::string describe(const FaultRecord& fault, const FaultPlace& place) {
  if (fault.fault == Fault::none) return {};
  const std::string kernel = "kernel " + place.kernel;
  if (fault.fault == Fault::stopped) return kernel + " was stopped";
  if (fault.fault == Fault::assertion) {
    return describe_assertion(fault.assertion, place.block, place.thread, place.memory);
  }
  char where[256];
  std::snprintf(where, sizeof(where), ", block (%u, %u, %u), thread (%u, %u, %u): ", place.block.x,
                place.block.y, place.block.z, place.thread.x, place.thread.y, place.thread.z);
  const std::string source = place.sources == nullptr ? "" : place.sources->at(fault.line);
  return kernel + of_tenant(place.owner) + where + describe_what(fault, place.memory) + " (" +
         (source.empty() ? "PTX line " + std::to_string(fault.line) : source) + ")";
}

}  // namespace ctxbroker::software::exec
