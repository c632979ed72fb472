// SPDX-License-Identifier: Apache-2.0
// Things of a neighbour that calls of others can change or hold up, and a look at whether anybody
// has.
#pragma once

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "attacks/foreign_attacks.h"

namespace ctxbroker {

class Victim {
 public:
  // Makes everything in the context that is current. With `captures`, one of its streams is being
  // captured; then it makes nothing else but a stream and an event.
  explicit Victim(bool captures);
  ForeignTarget target() noexcept;
  CUgraph make_replacement();  // a graph that stores something else; in the caller's name

  // What is damaged, in words. With the context current in which it was made.
  std::vector<std::string> damage();
  bool object_ends_soon() const;
  // Ends what it has, whatever state that is in.
  void end();

 private:
  struct Stored {
    CUdeviceptr address = 0;
    std::uint32_t value = 0;
    std::array<void*, 2> parameters{};
    CUDA_KERNEL_NODE_PARAMS node{};
  };
  void describe(Stored& stored, std::uint32_t value);
  CUgraph make_graph(Stored& stored, CUgraphNode* node, CUgraphNode* after) const;
  std::uint32_t result_of(CUgraphExec exec) const;
  bool is_ready() const;

  const bool captures_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr, capturing_ = nullptr;
  CUevent event_ = nullptr, captured_event_ = nullptr;
  CUdeviceptr memory_ = 0;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
  Stored own_, others_;
  CUgraph graph_ = nullptr;
  CUgraphNode node_ = nullptr, after_ = nullptr;
  CUgraphExec exec_ = nullptr;
  std::atomic<bool> object_ended_{false};
  CUuserObject object_ = nullptr;
  CUlinkState link_ = nullptr;
};

}  // namespace ctxbroker
