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
  group.block->fault = {fault, group.first_thread + lane, in.line, address, bytes};
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
    record_fault(group, in, lane, Fault::misaligned_address, address, bytes);
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
  record_fault(group, in, lane, Fault::illegal_address, address, bytes);
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

}  // namespace

std::string describe(const FaultRecord& fault, const std::string& kernel, const Dim3& block,
                     const Dim3& thread, const MemoryMap* memory) {
  char where[256];
  std::snprintf(where, sizeof(where), "block (%u, %u, %u), thread (%u, %u, %u)", block.x, block.y,
                block.z, thread.x, thread.y, thread.z);
  char what[160] = "";
  switch (fault.fault) {
    case Fault::illegal_address:
      std::snprintf(what, sizeof(what), "access of %u bytes at illegal address 0x%" PRIx64,
                    fault.bytes, fault.address);
      break;
    case Fault::misaligned_address:
      std::snprintf(what, sizeof(what), "access of %u bytes at misaligned address 0x%" PRIx64,
                    fault.bytes, fault.address);
      break;
    case Fault::trap:
      std::snprintf(what, sizeof(what), "trap");
      break;
    case Fault::invalid_pc:
      std::snprintf(what, sizeof(what),
                    "calls 0x%" PRIx64
                    ", which is no function of this module with the parameters "
                    "that the call passes",
                    fault.address);
      break;
    case Fault::stack_overflow:
      std::snprintf(what, sizeof(what),
                    "stack overflow: the calls need more than CU_LIMIT_STACK_SIZE allows "
                    "(cuCtxSetLimit raises it)");
      break;
    case Fault::bad_free:
      std::snprintf(what, sizeof(what),
                    "free of 0x%" PRIx64
                    ", which is no block that malloc gave, or one that is "
                    "free already",
                    fault.address);
      break;
    case Fault::assertion:
      return describe_assertion(fault.assertion, block, thread, memory);
    case Fault::deadlock:
      std::snprintf(what, sizeof(what),
                    "waits at a barrier that the rest of the block can never reach");
      break;
    case Fault::stopped:
      return "kernel " + kernel + " was stopped";
    case Fault::none:
      return {};
  }
  return "kernel " + kernel + ", " + where + ": " + what + " (PTX line " +
         std::to_string(fault.line) + ")";
}

}  // namespace ctxbroker::software::exec
