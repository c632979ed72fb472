// SPDX-License-Identifier: Apache-2.0
// What the tests of the engines share: memory that kernels may use, launches on every engine and
// level that this machine has, and the packing of arguments.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/execute.hpp"
#include "exec/program.hpp"
#include "memory/memory_map.hpp"

namespace ctxbroker::software::exec::testing {

struct Config {
  EngineChoice engine = EngineChoice::automatic;
  CpuLevel level = CpuLevel::baseline;
};
// Every engine on every level of this machine.
std::vector<Config> all_configs();
std::string name_of(const Config& config);

class Arguments {
 public:
  template <class... T>
  explicit Arguments(T... values) {
    (add(values), ...);
  }
  template <class T>
  void add(T value) {
    add_bytes(std::as_bytes(std::span(&value, 1)), alignof(T));
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void add_bytes(std::span<const std::byte> value, std::size_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    bytes_.insert(bytes_.end(), value.begin(), value.end());
  }
  std::vector<std::byte> bytes_;
};

// A module and the memory its kernels may touch.
class Device {
 public:
  explicit Device(const std::string& ptx, unsigned threads = 2);

  // Memory for kernels, aligned to 256; lives as long as the device.
  template <class T>
  T* upload(const std::vector<T>& values) {
    T* memory = static_cast<T*>(allocate(values.size() * sizeof(T)));
    if (!values.empty()) std::memcpy(memory, values.data(), values.size() * sizeof(T));
    return memory;
  }
  void* allocate(std::size_t bytes);

  Outcome launch(const Config& config, const std::string& kernel, Dim3 grid, Dim3 block,
                 const Arguments& arguments, std::uint32_t dynamic_shared = 0,
                 const std::atomic<bool>* stop = nullptr, Printout* printout = nullptr);

  void use_heap(DeviceHeap* heap) { heap_ = heap; }
  // From now on launches are cooperative.
  void use_workspace(std::uint64_t address) { workspace_ = address; }

  const Program& program() const { return *program_; }
  std::byte* global(const std::string& name);

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::shared_ptr<const Program> program_;
  MemoryMap memory_;
  WorkerPool pool_;
  std::list<std::unique_ptr<void, Free>> buffers_;
  std::vector<std::uint64_t> globals_;
  DeviceHeap* heap_ = nullptr;
  std::uint64_t workspace_ = 0;
};

// A module around a kernel "k" with this parameter list and body.
std::string kernel_text(const std::string& parameters, const std::string& body,
                        const std::string& before = "");

}  // namespace ctxbroker::software::exec::testing
