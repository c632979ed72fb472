// SPDX-License-Identifier: Apache-2.0
// A job whose buffers are guarded copies: bytes that nobody may touch stand around them and, with
// gaps, between their rows.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "ctxbroker/plugin.h"
#include "layer.hpp"

namespace ctxbroker::validate {

class LentJob {
 public:
  // Allocates and fills the copies. With Plan::holds, the job's stream then stands still.
  LentJob(const ctxb_job& job, const Plan& plan);
  ~LentJob();
  LentJob(const LentJob&) = delete;
  LentJob& operator=(const LentJob&) = delete;

  const ctxb_job& job() const noexcept { return lent_; }

  // After process: lets the stream go on, and waits for it. With `written`, looks at every copy and
  // hands the outputs to the host. Adds what it finds.
  void finish(bool written, std::vector<Finding>& findings);

 private:
  struct Piece {
    CUdeviceptr base = 0;    // of the whole allocation
    CUdeviceptr source = 0;  // what arrives late, if the stream is held
    CUdeviceptr original = 0;
    CUdeviceptr target = 0;  // of an output: where the host wants it
    std::size_t target_pitch = 0, pitch = 0, row_bytes = 0, rows = 0;
    bool is_output = false, is_input = false;
    std::string name{};
    std::vector<unsigned char> content{};  // of the whole allocation, as it was lent
  };

  ctxb_buffer lend(const ctxb_buffer& buffer, bool is_output, std::string name);
  bool share(const ctxb_buffer& with, ctxb_buffer& output);
  void fill(Piece& piece, const ctxb_buffer& buffer);
  void hold();
  void look_at(const Piece& piece, std::vector<Finding>& findings) const;
  void free_all() noexcept;

  Plan plan_;
  ctxb_job lent_;
  CUstream stream_;
  std::vector<ctxb_buffer> inputs_, outputs_;
  std::vector<std::vector<ctxb_buffer>> frames_;
  std::vector<Piece> pieces_;
  struct Hold {
    std::atomic<bool> released{false}, gave_up{false};
  };
  Hold* hold_ = nullptr;  // the host function on the stream reads it
};

}  // namespace ctxbroker::validate
