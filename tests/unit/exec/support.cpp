// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <algorithm>
#include <cstdlib>

namespace ctxbroker::software::exec::testing {

std::vector<Config> all_configs() {
  std::vector<Config> configs;
  for (const CpuLevel level : {CpuLevel::baseline, CpuLevel::avx2, CpuLevel::avx512}) {
    if (level > best_cpu_level()) continue;
    for (const EngineChoice engine :
         {EngineChoice::automatic, EngineChoice::scalar, EngineChoice::lockstep}) {
      configs.push_back({engine, level});
    }
  }
  return configs;
}

std::string name_of(const Config& config) {
  const char* engines[] = {"automatic", "scalar", "lockstep"};
  const char* levels[] = {"baseline", "avx2", "avx512"};
  return std::string(engines[static_cast<int>(config.engine)]) + " on " +
         levels[static_cast<int>(config.level)];
}

Device::Device(const std::string& ptx, unsigned threads) : program_(compile(ptx)), pool_(threads) {
  for (const GlobalVariable& variable : program_->globals) {
    auto* memory = static_cast<std::byte*>(allocate(variable.size));
    std::copy(variable.initial.begin(), variable.initial.end(), memory);
    globals_.push_back(reinterpret_cast<std::uintptr_t>(memory));
  }
}

void* Device::allocate(std::size_t bytes) {
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + 255) / 256 * 256;
  void* memory = std::aligned_alloc(256, size);
  std::memset(memory, 0, size);
  buffers_.emplace_back(memory);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  memory_.add({begin, begin + bytes});
  return memory;
}

Outcome Device::launch(const Config& config, const std::string& kernel, Dim3 grid, Dim3 block,
                       const Arguments& arguments, std::uint32_t dynamic_shared,
                       const std::atomic<bool>* stop, Printout* printout) {
  Launch launch;
  launch.kernel = program_->find_kernel(kernel);
  if (launch.kernel == nullptr) throw std::runtime_error("no kernel " + kernel);
  EXPECT_EQ(arguments.bytes().size(), launch.kernel->parameter_bytes) << kernel;
  launch.grid = grid;
  launch.block = block;
  launch.dynamic_shared_bytes = dynamic_shared;
  launch.parameters = arguments.bytes();
  launch.globals = globals_;
  launch.memory = &memory_;
  launch.stop = stop;
  launch.printout = printout;
  launch.heap = heap_;
  launch.workspace = workspace_;
  launch.cooperative = workspace_ != 0;
  launch.engine = config.engine;
  launch.cpu = config.level;
  return pool_.run(launch);
}

std::byte* Device::global(const std::string& name) {
  for (std::size_t i = 0; i < program_->globals.size(); ++i) {
    if (program_->globals[i].name == name) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are host addresses
      return reinterpret_cast<std::byte*>(globals_[i]);
    }
  }
  throw std::runtime_error("no variable " + name);
}

std::string kernel_text(const std::string& parameters, const std::string& body,
                        const std::string& before) {
  return ".version 7.8\n.target sm_90\n.address_size 64\n" + before + "\n.visible .entry k(" +
         parameters + ")\n{\n" + body + "\n}\n";
}

}  // namespace ctxbroker::software::exec::testing
