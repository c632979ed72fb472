// SPDX-License-Identifier: Apache-2.0
// Runs the blocks of a launch, one after another, on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "exec/code.hpp"
#include "exec/frame.hpp"

namespace ctxbroker::software::exec {

// Memory that only grows and is reused from launch to launch; zero when new.
class Arena {
 public:
  std::byte* reserve(std::size_t bytes);
  std::byte* begin() const noexcept;

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

// Asked between blocks and every few thousand loop iterations.
class Interrupt {
 public:
  virtual bool should_stop() = 0;

 protected:
  ~Interrupt() = default;
};

class BlockRunner {
 public:
  // May throw std::bad_alloc. `launch` must outlive the runs.
  void prepare(const Launch& launch);
  // Fault::none, or why the block did not finish; then message() says more.
  Fault run(const Dim3& block, Interrupt& interrupt);
  // The same in turns, beside other blocks: begin once, then advance until `finished` or a fault.
  void begin(const Dim3& block);
  Fault advance(bool& finished);

  // The size of the prepared block's registers and .local variables.
  std::uint64_t frame_bytes() const noexcept;
  std::string message() const;
  std::uint64_t take_instructions() noexcept;

 private:
  void use(const Code& code);
  bool find_rows();
  void begin_group(Group& group, std::uint32_t slot, std::uint32_t first_thread);
  Progress step(Group& group);
  Progress step_lanes(Group& group);
  void turn_scalar(Group& group);
  void release_barriers();
  void write_vote(Group& group, const Parked& parked, const Barrier& barrier);
  void place(const Dim3& block);
  Fault run_apart(const Dim3& block, Interrupt& interrupt);
  Fault run_together(const Dim3& block, Interrupt& interrupt);
  Fault advance(bool& finished, Interrupt* interrupt);
  Fault deadlock();
  std::byte* scalar_frame(const Group& group, std::uint32_t lane) const;

  const Launch* launch_ = nullptr;
  const Code* code_ = nullptr;
  const Rows* rows_ = nullptr;  // code_ is its body
  const Level* level_ = nullptr;
  const Instr* lockstep_ = nullptr;
  const Instr* scalar_ = nullptr;
  BlockState state_ = {};
  BlockPosition position_ = {};
  std::uint32_t threads_ = 0;
  bool together_ = false;           // groups may wait for each other
  std::uint32_t frames_ = 0;        // groups that have a frame of their own
  std::uint32_t scalar_lanes_ = 0;  // scalar frames per group
  std::vector<Group> groups_;
  std::vector<std::uint64_t> scalar_sets_;  // by group: lanes that have scalar frames, in order
  std::vector<std::uint32_t> filled_for_;   // by frame: first thread it was filled for
  std::vector<std::uint64_t> row_addresses_;
  Arena frame_memory_, scalar_memory_, local_memory_, shared_memory_, row_memory_;
};

}  // namespace ctxbroker::software::exec
