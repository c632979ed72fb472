// SPDX-License-Identifier: Apache-2.0
#include "api/launch.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/fault_text.hpp"
#include "api/library.hpp"
#include "api/logs.hpp"
#include "api/process.hpp"
#include "api/status.hpp"
#include "exec/printout.hpp"
#include "memory/owner.hpp"

namespace ctxbroker::software {
namespace {

std::string text_of(const exec::Dim3& size) {
  return "(" + std::to_string(size.x) + "," + std::to_string(size.y) + "," +
         std::to_string(size.z) + ")";
}

[[noreturn]] void refuse(const exec::Kernel& kernel, CUresult status, const std::string& why) {
  log_error("launch of " + kernel.name + ": " + why);
  fail(status);
}

bool within(const exec::Dim3& size, const unsigned (&most)[3]) {
  return size.x >= 1 && size.y >= 1 && size.z >= 1 && size.x <= most[0] && size.y <= most[1] &&
         size.z <= most[2];
}

void check_sizes(const Function& function, const LaunchRequest& request) {
  const exec::Kernel& kernel = function.kernel;
  if (!within(request.grid, device_limits::max_grid))
    refuse(kernel, CUDA_ERROR_INVALID_VALUE,
           "grid dimensions " + text_of(request.grid) +
               " are not between 1 and (2147483647,65535,65535)");
  if (!within(request.block, device_limits::max_block))
    refuse(kernel, CUDA_ERROR_INVALID_VALUE,
           "block dimensions " + text_of(request.block) + " are not between 1 and (1024,1024,64)");
  unsigned threads = request.block.x * request.block.y * request.block.z;
  unsigned most = function.max_threads();
  if (threads > most)
    refuse(kernel, CUDA_ERROR_INVALID_VALUE,
           std::to_string(threads) + " threads per block are more than the kernel's " +
               std::to_string(most));
  if (request.dynamic_shared > static_cast<unsigned>(function.max_dynamic_shared()))
    refuse(kernel, CUDA_ERROR_INVALID_VALUE,
           std::to_string(request.dynamic_shared) +
               " bytes of dynamic shared memory are more than the function's limit of " +
               std::to_string(function.max_dynamic_shared()) +
               "; raise CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES");
}

struct PackedBuffer {
  const void* data = nullptr;
  std::size_t size = 0;  // bytes
};

PackedBuffer read_extra(void** extra) {
  PackedBuffer buffer;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer.data = extra[1];
    } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      check_value(extra[1] != nullptr);
      buffer.size = *static_cast<const std::size_t*>(extra[1]);
    } else {
      fail(CUDA_ERROR_INVALID_VALUE);
    }
  }
  check_value((buffer.data != nullptr) == (buffer.size != 0));
  return buffer;
}

std::vector<std::byte> pack_arguments(const exec::Kernel& kernel, const LaunchRequest& request) {
  check_value(request.parameters == nullptr || request.extra == nullptr);
  std::vector<std::byte> packed(kernel.parameter_bytes);
  if (request.extra != nullptr) {
    PackedBuffer buffer = read_extra(request.extra);
    check_value(buffer.data != nullptr || kernel.parameters.empty());
    if (buffer.size > packed.size())
      refuse(kernel, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
             std::to_string(buffer.size) + " bytes of arguments are more than the kernel's " +
                 std::to_string(packed.size()));
    if (buffer.size != 0) std::memcpy(packed.data(), buffer.data, buffer.size);
    return packed;
  }
  if (kernel.parameters.empty()) return packed;
  if (request.parameters == nullptr)
    refuse(kernel, CUDA_ERROR_INVALID_VALUE,
           "it takes " + std::to_string(kernel.parameters.size()) + " arguments, none is given");
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    if (request.parameters[i] == nullptr)
      refuse(kernel, CUDA_ERROR_INVALID_VALUE, "argument " + std::to_string(i) + " is null");
    const exec::KernelParameter& parameter = kernel.parameters[i];
    std::memcpy(packed.data() + parameter.offset, request.parameters[i], parameter.size);
  }
  return packed;
}

// Blocks that wait for each other must be resident at once.
void check_all_fit(const KernelCall& call, const Context& context) {
  const exec::Dim3& grid = call.grid;
  std::uint64_t blocks = std::uint64_t(grid.x) * grid.y * grid.z;
  unsigned at_once = active_blocks(*call.function, call.block.x * call.block.y * call.block.z,
                                   call.dynamic_shared);
  std::uint64_t most = std::uint64_t(at_once) * context.multiprocessors.count();
  if (blocks > most)
    refuse(call.function->kernel, CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
           std::to_string(blocks) + " blocks of a cooperative launch are more than the " +
               std::to_string(most) + " that fit on the multiprocessors at once");
}

// What cooperative_groups finds behind %envreg1 and %envreg2: its size, and the count of the blocks
// that wait.
class Workspace {
 public:
  Workspace() { registry_.add_heap(range_); }
  ~Workspace() { registry_.remove_heap(range_); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  std::uint64_t address() const { return range_.begin; }

 private:
  MemoryRegistry& registry_ = Process::instance().memory;
  alignas(16) std::uint32_t words_[4] = {sizeof words_};
  AddressRange range_{reinterpret_cast<std::uintptr_t>(words_),
                      reinterpret_cast<std::uintptr_t>(words_) + sizeof words_};
};

CUresult status_of(exec::Fault fault) {
  switch (fault) {
    case exec::Fault::none:
    case exec::Fault::stopped:
      return CUDA_SUCCESS;
    case exec::Fault::illegal_address:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case exec::Fault::misaligned_address:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case exec::Fault::trap:
    case exec::Fault::bad_free:
      return CUDA_ERROR_LAUNCH_FAILED;
    case exec::Fault::invalid_pc:
      return CUDA_ERROR_INVALID_PC;
    case exec::Fault::stack_overflow:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case exec::Fault::assertion:
      return CUDA_ERROR_ASSERT;
    case exec::Fault::deadlock:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
  }
  return CUDA_ERROR_UNKNOWN;
}

// On the executor's thread.
CUresult execute(const KernelCall& call) {
  Device& device = call.function->context.device;
  exec::Launch run;
  run.kernel = &call.function->kernel;
  run.owner = call.owner;
  run.grid = call.grid;
  run.block = call.block;
  run.dynamic_shared_bytes = call.dynamic_shared;
  // A GPU passes parameters in registers: its frames are smaller than those of this device.
  constexpr std::size_t frames_are_larger = 4;
  run.stack_bytes = static_cast<std::uint32_t>(frames_are_larger *
                                               call.function->context.limits[CU_LIMIT_STACK_SIZE]);
  run.parameters = call.arguments;
  run.globals = call.module->global_addresses;
  run.memory = &Process::instance().memory.map();
  // CUDA has one buffer per context, which is shown when somebody waits for its work. Here each
  // launch has its own, shown when the kernel ends, however it ends: whoever waits misses nothing.
  const std::size_t fifo = call.function->context.limits[CU_LIMIT_PRINTF_FIFO_SIZE];
  exec::Printout printout(stdout, fifo);
  run.printout = &printout;
  run.heap = call.heap.get();
  std::optional<Workspace> workspace;
  if (call.cooperative) run.workspace = workspace.emplace().address();
  run.cooperative = call.cooperative;
  run.stop = &device.executor.interrupted();
  run.cpu = exec::best_cpu_level();
  exec::Outcome outcome = device.pool().run(run);
  printout.flush();
  if (outcome.fault != exec::Fault::none && outcome.fault != exec::Fault::stopped)
    remember_fault(outcome.message, call.owner);
  // Of the threads that fail an assert at once, CUDA names each, this device the first.
  if (outcome.fault == exec::Fault::assertion)
    std::fprintf(stderr, "%s\n", outcome.message.c_str());
  return status_of(outcome.fault);
}

}  // namespace

unsigned active_blocks(const Function& function, unsigned threads, std::size_t dynamic_shared) {
  if (threads > function.max_threads()) return 0;
  unsigned warps = (threads + 31) / 32;
  unsigned blocks = std::min(device_limits::max_blocks_per_multiprocessor,
                             device_limits::max_threads / (warps * 32));
  std::size_t shared = function.kernel.static_shared_bytes + dynamic_shared;
  if (dynamic_shared > static_cast<std::size_t>(function.max_dynamic_shared())) return 0;
  if (shared != 0)
    blocks = static_cast<unsigned>(
        std::min<std::size_t>(blocks, device_limits::shared_per_block_optin / shared));
  return blocks;
}

std::shared_ptr<const KernelCall> make_call(const LaunchRequest& request, Context& context) {
  std::shared_ptr<Function> function = find_function(request.function, context);
  std::shared_ptr<Module> module = function->module.lock();
  check_that(module != nullptr && &function->context == &context, CUDA_ERROR_INVALID_HANDLE);
  check_sizes(*function, request);
  std::vector<std::byte> arguments = pack_arguments(function->kernel, request);
  std::shared_ptr<exec::DeviceHeap> heap;
  if (function->kernel.uses_heap) heap = context.heap();
  return std::make_shared<const KernelCall>(KernelCall{
      std::move(function), std::move(module), request.grid, request.block, request.dynamic_shared,
      std::move(arguments), request.cooperative, std::move(heap), current_owner()});
}

std::function<CUresult()> work_of(const std::shared_ptr<const KernelCall>& call) {
  return [call] { return execute(*call); };
}

void check_loaded(const KernelCall& call) {
  Process::instance().functions.find(call.function->handle);
}

void launch(const LaunchRequest& request) {
  std::shared_ptr<Stream> stream = find_stream(request.stream);
  std::shared_ptr<const KernelCall> call = make_call(request, stream->context.owner);
  if (request.cooperative) check_all_fit(*call, stream->context);
  auto command = std::make_shared<Command>();
  command->kind = Command::Kind::kernel;
  command->uses = call->module.get();
  command->node_type = CU_GRAPH_NODE_TYPE_KERNEL;
  command->work = work_of(call);
  command->kernel = std::move(call);
  enqueue(stream, command);
}

}  // namespace ctxbroker::software
