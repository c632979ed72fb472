// SPDX-License-Identifier: Apache-2.0
// A host that links the driver itself, every function bound before main, and uses CUDA before it
// opens a broker; built in several ways of linking the broker. It says which gate it has, and what
// an attack left of its memory.
#include "linked_host.hpp"

#include <cuda.h>

#include <cstdio>
#include <string_view>

#include "attacks/attacks.h"
#include "ctxbroker/broker.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {

void attack_of_another(Broker& broker, CUdeviceptr memory) {
  Tenant attacker = broker.open_tenant("attacker", {LeaseChoice(LeaseKind::green)});
  const AdoptedLibrary library = attacker.adopt(test_library("attacks_linked"));
  auto* attack = reinterpret_cast<attack_function*>(library.symbol(ATTACK));
  AttackTarget target{};
  target.memory = memory;
  for (const char* one : {"reset", "reset_v2", "release", "release_v2", "free_memory"}) {
    attacker.run(0, [&] { attack(one, &target); });
  }
}

int run_linked_host(bool use_gate) {
  CUcontext primary = nullptr;
  CUdeviceptr memory = 0;
  CUresult status = cuInit(0);
  if (status == CUDA_ERROR_NO_DEVICE) {
    std::printf("no device\n");
    return 0;
  }
  if (status == CUDA_SUCCESS) status = cuDevicePrimaryCtxRetain(&primary, 0);
  if (status == CUDA_SUCCESS) status = cuCtxSetCurrent(primary);
  if (status == CUDA_SUCCESS) status = cuMemAlloc(&memory, 64);
  if (status == CUDA_SUCCESS) status = cuMemsetD8(memory, 0x5a, 64);
  if (status != CUDA_SUCCESS) {
    std::printf("before the broker: %d\n", static_cast<int>(status));
    return 1;
  }
  BrokerOptions options;
  options.use_gate = use_gate;
  Broker broker = Broker::open(std::move(options));
  std::printf("gate: %s (%s)\ndriver: %s\n", to_string(broker.gate().mode),
              broker.gate().reason.c_str(), broker.driver().path.c_str());
  for (const std::string& tool : broker.gate().tools) std::printf("tool: %s\n", tool.c_str());
  attack_of_another(broker, memory);
  CUcontext current = nullptr;
  unsigned char content[64] = {};
  const bool is_whole = cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == primary &&
                        cuMemcpyDtoH(content, memory, sizeof content) == CUDA_SUCCESS &&
                        content[63] == 0x5a && cuMemFree(memory) == CUDA_SUCCESS;
  std::printf("the host's memory: %s\n", is_whole ? "whole" : "DAMAGED");
  return 0;
}

}  // namespace ctxbroker
