// SPDX-License-Identifier: Apache-2.0
// Running one kernel launch on the CPU: blocks spread over a pool of threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "exec/program.hpp"
#include "memory/memory_map.hpp"

namespace ctxbroker::software::exec {

class DeviceHeap;
class Printout;

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

// Which engine runs a group of lanes; `automatic` is what the driver uses.
enum class EngineChoice { automatic, scalar, lockstep };

// Instruction-set levels the lockstep engine is compiled for.
enum class CpuLevel { baseline, avx2, avx512 };

// The best level of this machine; CTXBROKER_SOFTWARE_CPU=baseline|avx2|avx512 lowers it.
CpuLevel best_cpu_level() noexcept;

struct Launch {
  const Kernel* kernel = nullptr;
  const char* owner = nullptr;  // who launched it, for messages; null: unknown
  Dim3 grid, block;
  std::uint32_t dynamic_shared_bytes = 0;
  std::uint32_t stack_bytes = 4096;        // per thread, for calls that are not expanded in place
  std::span<const std::byte> parameters;   // kernel->parameter_bytes
  std::span<const std::uint64_t> globals;  // address of each Program::globals entry
  const MemoryMap* memory = nullptr;       // which global addresses are legal
  // All blocks take turns, so that they may wait for each other. %envreg1 and %envreg2 have the
  // address of `workspace`, where cooperative_groups counts the blocks that wait.
  bool cooperative = false;
  std::uint64_t workspace = 0;
  DeviceHeap* heap = nullptr;               // for malloc; null: it gives nothing
  Printout* printout = nullptr;             // what kernels print; null: it is lost
  const std::atomic<bool>* stop = nullptr;  // set by another thread: end soon, as Fault::stopped
  EngineChoice engine = EngineChoice::automatic;
  CpuLevel cpu = CpuLevel::baseline;
};

enum class Fault {
  none,
  illegal_address,     // CUDA_ERROR_ILLEGAL_ADDRESS
  misaligned_address,  // CUDA_ERROR_MISALIGNED_ADDRESS
  trap,                // CUDA_ERROR_LAUNCH_FAILED
  invalid_pc,          // CUDA_ERROR_INVALID_PC: a call of what is no function
  bad_free,            // CUDA_ERROR_LAUNCH_FAILED: a free of what malloc did not give, or again
  stack_overflow,      // CUDA_ERROR_ILLEGAL_ADDRESS, as a GPU says it
  assertion,           // CUDA_ERROR_ASSERT; the message is the line that CUDA prints for it
  deadlock,            // a barrier that part of a block can never reach
  stopped,
};

struct Outcome {
  Fault fault = Fault::none;
  std::string message;                    // for people: see describe in fault.hpp
  std::uint64_t thread_instructions = 0;  // executed lane-instructions, for benchmarks
};

// Threads that execute blocks. One pool serves one device; run is called by one thread at a time.
class WorkerPool {
 public:
  explicit WorkerPool(unsigned threads);  // the caller of run is one of them; at least 1
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Returns when every block has finished, or one has faulted and the others have stopped.
  Outcome run(const Launch& launch);

  unsigned threads() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ctxbroker::software::exec
