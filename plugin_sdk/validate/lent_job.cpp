// SPDX-License-Identifier: Apache-2.0
#include "lent_job.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "driver_calls.hpp"

namespace ctxbroker::validate {
namespace {

// An address is a multiple of 16 and of nothing larger, which is all that plugin.h promises.
constexpr std::size_t band = 4096 + 16;
// Returns a byte of the band that guards a buffer. An input's bytes differ from an output's,
// because a kernel that goes too far in both copies the one to the other.
unsigned char guard_byte(std::size_t at, bool is_input) {
  return static_cast<unsigned char>(at * 29 + (is_input ? 0xB7 : 0x4C));
}
constexpr std::chrono::seconds longest_hold{2};
// The time for which the inputs stay away after process. Work outside of the job's stream may start
// late on a busy machine. It is seen only if it starts before they arrive.
constexpr std::chrono::milliseconds inputs_arrive_after{100};

void check_call(CUresult status, const char* call) {
  if (status != CUDA_SUCCESS) {
    throw std::runtime_error(std::string(call) + " answered " + std::to_string(status));
  }
}

std::size_t pixel_bytes(const ctxb_buffer& buffer) {
  if (buffer.media == CTXB_MEDIA_RESULTS) return 1;
  const std::size_t sample = buffer.samples == CTXB_SAMPLE_HALF ? 2 : 4;
  return buffer.media == CTXB_MEDIA_AUDIO ? 4 : sample * buffer.channels;
}

void copy_rows(const CUDA_MEMCPY2D& copy) {
  if (copy.WidthInBytes != 0 && copy.Height != 0) check_call(driver().copy_2d(&copy), "cuMemcpy2D");
}

std::string at_byte(std::size_t first, std::size_t count) {
  return std::to_string(count) + " byte(s), the first one " + std::to_string(first) + " byte(s) ";
}

}  // namespace

LentJob::LentJob(const ctxb_job& job, const Plan& plan)
    : plan_(plan), lent_(job), stream_(static_cast<CUstream>(job.stream)) {
  try {
    check_call(driver().stream_synchronize(stream_), "cuStreamSynchronize");
    frames_.resize(job.input_count);
    for (std::uint32_t i = 0; i < job.input_count; ++i) {
      const std::string name = "input " + std::to_string(i);
      ctxb_buffer lent = job.inputs[i];
      if (lent.frame_count > 0) {
        for (std::uint32_t k = 0; k < lent.frame_count; ++k) {
          frames_[i].push_back(lend(lent.frames[k], false, name + ", frame " + std::to_string(k)));
        }
        const auto own = std::find_if(lent.frames, lent.frames + lent.frame_count,
                                      [&](const ctxb_buffer& f) { return f.data == lent.data; });
        const auto index = static_cast<std::size_t>(own - lent.frames);
        if (index < frames_[i].size()) {
          lent.data = frames_[i][index].data;
          lent.row_pitch = frames_[i][index].row_pitch;
        }
        lent.frames = frames_[i].data();
      } else {
        lent = lend(lent, false, name);
      }
      inputs_.push_back(lent);
    }
    for (std::uint32_t i = 0; i < job.output_count; ++i) {
      const int input = i < plan_.in_place.size() ? plan_.in_place[i] : -1;
      outputs_.push_back(job.outputs[i]);
      if (input >= 0 && share(inputs_[static_cast<std::size_t>(input)], outputs_.back())) continue;
      outputs_.back() = lend(job.outputs[i], true, "output " + std::to_string(i));
    }
    lent_.inputs = inputs_.data();
    lent_.outputs = outputs_.data();
    // The buffers are filled in the stream, because a driver may still copy when a copy without a
    // stream returns.
    check_call(driver().stream_synchronize(stream_), "cuStreamSynchronize");
    if (plan_.holds) hold();
  } catch (...) {
    free_all();
    throw;
  }
}

LentJob::~LentJob() {
  free_all();
}

void LentJob::free_all() noexcept {
  if (hold_ != nullptr) hold_->released = true;
  driver().stream_synchronize(stream_);
  for (const Piece& piece : pieces_) {
    driver().mem_free(piece.base);
    if (piece.source != 0) driver().mem_free(piece.source);
  }
  pieces_.clear();
  delete hold_;
  hold_ = nullptr;
}

ctxb_buffer LentJob::lend(const ctxb_buffer& buffer, bool is_output, std::string name) {
  ctxb_buffer lent = buffer;
  if (buffer.data == 0) return lent;
  // Two inputs of one buffer share the copy. An output never does, unless the plan says so: in an
  // input's buffer, what is not written looks as if it were.
  for (const Piece& piece : pieces_) {
    if (is_output || piece.original != buffer.data) continue;
    lent.data = piece.base + band;
    lent.row_pitch = piece.pitch;
    return lent;
  }
  Piece piece;
  piece.name = std::move(name);
  piece.is_output = is_output;
  piece.is_input = !is_output;
  piece.original = buffer.data;
  piece.target = is_output ? buffer.data : 0;
  piece.target_pitch = buffer.row_pitch;
  const std::size_t pixel = pixel_bytes(buffer);
  piece.row_bytes = buffer.media == CTXB_MEDIA_RESULTS ? buffer.width : buffer.width * pixel;
  piece.rows = buffer.height;
  piece.pitch = piece.row_bytes + (plan_.has_gaps ? 3 * pixel : 0);
  fill(piece, buffer);
  lent.data = piece.base + band;
  lent.row_pitch = piece.pitch;
  pieces_.push_back(std::move(piece));
  return lent;
}

// The output gets the copy of the input. False where their formats differ.
bool LentJob::share(const ctxb_buffer& with, ctxb_buffer& output) {
  if (with.data == 0 || with.width != output.width || with.height != output.height ||
      with.channels != output.channels || with.samples != output.samples) {
    return false;
  }
  for (Piece& piece : pieces_) {
    if (piece.base + band != with.data) continue;
    piece.is_output = true;
    piece.target = output.data;
    piece.target_pitch = output.row_pitch;
    output.data = with.data;
    output.row_pitch = with.row_pitch;
    return true;
  }
  return false;
}

void LentJob::fill(Piece& piece, const ctxb_buffer& buffer) {
  const std::size_t bytes = 2 * band + piece.pitch * piece.rows;
  piece.content.resize(bytes);
  for (std::size_t i = 0; i < bytes; ++i) piece.content[i] = guard_byte(i, piece.is_input);
  if (piece.is_input) {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = buffer.data;
    copy.srcPitch = std::max<std::size_t>(buffer.row_pitch, piece.row_bytes);
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = piece.content.data() + band;
    copy.dstPitch = piece.pitch;
    copy.WidthInBytes = piece.row_bytes;
    copy.Height = piece.rows;
    copy_rows(copy);
  } else {
    for (std::size_t row = 0; row < piece.rows; ++row) {
      unsigned char* const begin = piece.content.data() + band + row * piece.pitch;
      for (std::size_t i = 0; i < piece.row_bytes; ++i) {
        begin[i] = static_cast<unsigned char>(plan_.poison >> (8 * (i % 4)));
      }
    }
  }
  check_call(driver().mem_alloc(&piece.base, bytes), "cuMemAlloc");
  const CUresult filled = driver().copy_to_device(piece.base, piece.content.data(), bytes, stream_);
  if (filled != CUDA_SUCCESS) driver().mem_free(piece.base);
  check_call(filled, "cuMemcpyHtoDAsync");
}

// The inputs arrive behind a host function that waits. A plug-in that waits for the device, or
// works elsewhere than in the job's stream, comes too early.
void LentJob::hold() {
  hold_ = new Hold;
  for (Piece& piece : pieces_) {
    if (!piece.is_input) continue;
    const std::size_t bytes = piece.content.size();
    check_call(driver().mem_alloc(&piece.source, bytes), "cuMemAlloc");
    check_call(driver().copy_to_device(piece.source, piece.content.data(), bytes, stream_),
               "cuMemcpyHtoDAsync");
    const std::vector<unsigned char> early(bytes, 0xB7);
    check_call(driver().copy_to_device(piece.base, early.data(), bytes, stream_),
               "cuMemcpyHtoDAsync");
  }
  check_call(driver().stream_synchronize(stream_), "cuStreamSynchronize");
  check_call(driver().launch_host_function(
                 stream_,
                 [](void* data) {
                   Hold& hold = *static_cast<Hold*>(data);
                   const auto end = std::chrono::steady_clock::now() + longest_hold;
                   while (!hold.released) {
                     if (std::chrono::steady_clock::now() > end) {
                       hold.gave_up = true;
                       return;
                     }
                     std::this_thread::sleep_for(std::chrono::microseconds(200));
                   }
                 },
                 hold_),
             "cuLaunchHostFunc");
  for (const Piece& piece : pieces_) {
    if (piece.source == 0) continue;
    check_call(driver().copy_on_device(piece.base, piece.source, piece.content.size(), stream_),
               "cuMemcpyDtoDAsync");
  }
}

void LentJob::finish(bool written, std::vector<Finding>& findings) {
  if (hold_ != nullptr) {
    if (hold_->gave_up) {
      findings.push_back({Mishap::waited,
                          "process returned only when the work in front of it in the job's stream "
                          "had ended"});
    }
    std::this_thread::sleep_for(inputs_arrive_after);
    hold_->released = true;
  }
  // After a fault the broker says what it was.
  if (driver().stream_synchronize(stream_) != CUDA_SUCCESS || !written) return;
  for (const Piece& piece : pieces_) look_at(piece, findings);
}

void LentJob::look_at(const Piece& piece, std::vector<Finding>& findings) const {
  std::vector<unsigned char> now(piece.content.size());
  if (driver().copy_to_host(now.data(), piece.base, now.size()) != CUDA_SUCCESS) return;
  const std::size_t end = band + piece.pitch * piece.rows;
  struct Where {
    std::size_t first = 0, count = 0;
    void add(std::size_t at) {
      if (count++ == 0) first = at;
    }
  };
  Where before, after, between, inside;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] == piece.content[i]) continue;
    if (i < band) {
      before.add(i);
    } else if (i >= end) {
      after.add(i);
    } else if ((i - band) % piece.pitch >= piece.row_bytes) {
      between.add(i);
    } else {
      inside.add(i);
    }
  }
  if (before.count > 0) {
    findings.push_back({Mishap::guard_band, "wrote " + at_byte(band - before.first, before.count) +
                                                "before " + piece.name});
  }
  if (after.count > 0) {
    findings.push_back({Mishap::guard_band, "wrote " + at_byte(after.first - end, after.count) +
                                                "behind the end of " + piece.name});
  }
  if (between.count > 0) {
    findings.push_back({Mishap::row_gap, "wrote " + std::to_string(between.count) +
                                             " byte(s) between the rows of " + piece.name +
                                             ", the first ones behind row " +
                                             std::to_string((between.first - band) / piece.pitch)});
  }
  if (!piece.is_output && inside.count > 0) {
    findings.push_back({Mishap::input_changed,
                        "changed " + std::to_string(inside.count) + " byte(s) of " + piece.name});
  }
  if (!piece.is_output) return;
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = piece.base + band;
  copy.srcPitch = piece.pitch;
  copy.dstDevice = piece.target;
  copy.dstPitch = std::max(piece.target_pitch, piece.row_bytes);
  copy.WidthInBytes = piece.row_bytes;
  copy.Height = piece.rows;
  copy_rows(copy);
}

}  // namespace ctxbroker::validate
