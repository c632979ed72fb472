// SPDX-License-Identifier: Apache-2.0
#include "exec/block.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "exec/fault.hpp"

namespace ctxbroker::software::exec {
namespace {

constexpr std::size_t memory_alignment = 256;
constexpr std::uint32_t few_lanes = 8;  // up to here the scalar engine is faster
constexpr std::uint32_t scratch_bytes = group_lanes * 8;
constexpr std::size_t small_frames =
    24576;  // of all groups; the processor's first cache holds them
constexpr std::uint32_t not_filled = ~0U;
// Backward branches until other lanes and groups get their turn: soon, where they may be what the
// running ones wait for.
constexpr std::int32_t short_turn = 64, long_turn = 4096;

std::uint64_t first_lanes(std::uint32_t count) {
  return count >= group_lanes ? ~0ULL : (1ULL << count) - 1;
}

std::uint32_t count_lanes(std::uint64_t mask) {
  return static_cast<std::uint32_t>(std::popcount(mask));
}

std::uint32_t first_lane(std::uint64_t mask) {
  return static_cast<std::uint32_t>(std::countr_zero(mask));
}

void add_ready(Group& group, std::uint32_t pc, std::uint64_t mask) {
  for (std::uint32_t i = 0; i < group.ready_count; ++i) {
    if (group.ready[i].pc == pc) {
      group.ready[i].mask |= mask;
      return;
    }
  }
  group.ready[group.ready_count++] = {pc, mask};
}

Dim3 position_of(std::uint32_t thread, const Dim3& block) {
  return {thread % block.x, thread / block.x % block.y, thread / block.x / block.y};
}

}  // namespace

void Arena::Free::operator()(std::byte* memory) const noexcept {
  std::free(memory);
}

std::byte* Arena::reserve(std::size_t bytes) {
  if (bytes > size_ || !memory_) {
    const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), memory_alignment);
    memory_.reset();
    size_ = 0;
    // Of a large stack most is never touched, so calloc's memory costs nothing until it is.
    memory_.reset(static_cast<std::byte*>(std::calloc(1, size + memory_alignment)));
    if (!memory_) throw std::bad_alloc();
    size_ = size;
  }
  return begin();
}

std::byte* Arena::begin() const noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
  return memory_.get() + (round_up(address, memory_alignment) - address);
}

void BlockRunner::prepare(const Launch& launch) {
  launch_ = &launch;
  level_ = &level_of(launch.cpu);
  threads_ = launch.block.x * launch.block.y * launch.block.z;
  state_ = {};
  state_.parameters = launch.parameters.data();
  state_.parameter_bytes = launch.parameters.size();
  state_.memory = launch.memory;
  state_.heap = launch.heap;
  state_.printout = launch.printout;
  rows_ = nullptr;
  use(*launch.kernel->code);
  const Rows* rows = code_->rows.get();
  if (rows == nullptr || launch.block.x != threads_ || threads_ <= few_lanes ||
      launch.engine == EngineChoice::scalar) {
    return;
  }
  rows_ = rows;
  row_addresses_.resize(rows->rows.size());
  state_.rows = row_addresses_.data();
  std::byte* frame = row_memory_.reserve(std::size_t{2} * rows->addresses.scalar_bytes);
  for (const std::uint32_t thread : {0U, threads_ - 1}) {
    fill_scalar(rows->addresses, position_, thread, PresetScope::launch, frame);
    fill_scalar(rows->addresses, position_, thread, PresetScope::thread, frame);
    frame += rows->addresses.scalar_bytes;
  }
  use(rows->body);
}

std::uint64_t BlockRunner::frame_bytes() const noexcept {
  const std::uint64_t per_group = code_->lockstep_bytes +
                                  std::uint64_t{scalar_lanes_} * code_->scalar_bytes +
                                  std::uint64_t{group_lanes} * code_->local_bytes;
  return frames_ * per_group;
}

void BlockRunner::use(const Code& code) {
  const Launch& launch = *launch_;
  code_ = &code;
  lockstep_ = code_->lockstep(launch.cpu);
  scalar_ = code_->scalar(launch.cpu);
  const std::uint32_t groups = (threads_ + group_lanes - 1) / group_lanes;
  // Groups that may wait for each other must all be under way. Others reuse one frame, or have one
  // each where that is little memory, because thread indices then stay from block to block.
  together_ = groups > 1 && (code_->has_barrier || code_->has_atomic || launch.cooperative);
  const std::size_t legal_local =
      std::size_t{code_->local_bytes} + (code_->uses_stack ? launch.stack_bytes : 0);
  const std::size_t local = round_up(legal_local, 16);
  const bool small = groups * (code_->lockstep_bytes + group_lanes * local) <= small_frames;
  frames_ = together_ || small ? groups : 1;
  scalar_lanes_ = launch.engine == EngineChoice::scalar ? group_lanes : few_lanes;

  std::byte* frames =
      frame_memory_.reserve(frames_ * std::size_t{code_->lockstep_bytes} + scratch_bytes);
  scalar_memory_.reserve(std::size_t{frames_} * scalar_lanes_ * code_->scalar_bytes);
  std::byte* locals = local_memory_.reserve(std::size_t{frames_} * group_lanes * local);
  state_.shared_bytes = std::uint64_t{code_->static_shared_bytes} + launch.dynamic_shared_bytes;
  state_.shared = shared_memory_.reserve(state_.shared_bytes);
  position_ = {&launch, {}, state_.shared};

  groups_.resize(frames_);
  scalar_sets_.assign(frames_, 0);
  filled_for_.assign(frames_, not_filled);
  for (std::uint32_t i = 0; i < frames_; ++i) {
    Group& group = groups_[i];
    group.block = &state_;
    group.frame = frames + scratch_bytes + i * std::size_t{code_->lockstep_bytes};
    group.scratch = frames;
    group.local = locals + std::size_t{i} * group_lanes * local;
    group.local_stride = local;
    group.local_bytes = legal_local;
    group.turn_length = code_->has_atomic || launch.cooperative ? short_turn : long_turn;
    fill_lockstep(*code_, position_, 0, PresetScope::launch, group.frame);
  }
}

std::byte* BlockRunner::scalar_frame(const Group& group, std::uint32_t lane) const {
  const std::size_t index = static_cast<std::size_t>(&group - groups_.data());
  const std::uint32_t rank = count_lanes(scalar_sets_[index] & first_lanes(lane));
  return scalar_memory_.begin() + (index * scalar_lanes_ + rank) * std::size_t{code_->scalar_bytes};
}

void BlockRunner::begin_group(Group& group, std::uint32_t slot, std::uint32_t first_thread) {
  const std::uint32_t lanes = std::min(group_lanes, threads_ - first_thread);
  group.first_thread = first_thread;
  group.live = first_lanes(lanes);
  group.held = 0;
  group.turn = 0;
  group.parked_count = 0;
  group.ready[0] = {0, group.live};
  group.ready_count = 1;
  const bool free_choice = launch_->engine == EngineChoice::automatic && rows_ == nullptr;
  group.scalar = !code_->has_warp_operation &&
                 (launch_->engine == EngineChoice::scalar || (free_choice && lanes <= few_lanes));
  group.may_turn_scalar = free_choice && !group.scalar && !code_->has_warp_operation;
  if (group.scalar) {
    scalar_sets_[slot] = group.live;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      std::byte* frame = scalar_frame(group, lane);
      fill_scalar(*code_, position_, first_thread + lane, PresetScope::launch, frame);
      fill_scalar(*code_, position_, first_thread + lane, PresetScope::block, frame);
      fill_scalar(*code_, position_, first_thread + lane, PresetScope::thread, frame);
    }
    return;
  }
  if (filled_for_[slot] != first_thread) {
    fill_lockstep(*code_, position_, first_thread, PresetScope::thread, group.frame);
    filled_for_[slot] = first_thread;
  }
}

// Few lanes are left: their values move to scalar frames, and they go on one by one.
void BlockRunner::turn_scalar(Group& group) {
  scalar_sets_[static_cast<std::size_t>(&group - groups_.data())] = group.live;
  for (std::uint64_t left = group.live; left != 0; left &= left - 1) {
    const std::uint32_t lane = first_lane(left);
    lane_to_scalar(*code_, group.frame, lane, scalar_frame(group, lane));
  }
  for (std::uint32_t i = 0; i < group.parked_count; ++i) {
    group.parked[i].instruction = scalar_ + (group.parked[i].instruction - lockstep_);
  }
  group.held = 0;
  group.scalar = true;
  group.may_turn_scalar = false;
}

Progress BlockRunner::step_lanes(Group& group) {
  Fragment fragments[group_lanes];
  const std::uint32_t count = group.ready_count;
  std::copy_n(group.ready, count, fragments);
  group.ready_count = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::uint64_t left = fragments[i].mask; left != 0; left &= left - 1) {
      const std::uint32_t index = first_lane(left);
      const std::uint64_t bit = 1ULL << index;
      Lane lane = {};
      lane.block = &state_;
      lane.group = &group;
      lane.frame = scalar_frame(group, index);
      lane.index = index;
      lane.turn_left = group.turn_length;
      level_->run_lane(lane, scalar_ + fragments[i].pc);
      state_.instructions += lane.instructions;
      switch (lane.result) {
        case Lane::Result::exited:
          group.live &= ~bit;
          break;
        case Lane::Result::turn:
          add_ready(group, static_cast<std::uint32_t>(lane.resume - scalar_), bit);
          break;
        case Lane::Result::barrier:
          group.parked[group.parked_count++] = {static_cast<std::uint32_t>(lane.resume - scalar_),
                                                bit, lane.barrier, lane.resume - 1};
          break;
        case Lane::Result::fault:
          return Progress::fault;
      }
    }
  }
  if (group.ready_count != 0) return Progress::turn;
  return group.live == 0 ? Progress::finished : Progress::parked;
}

Progress BlockRunner::step(Group& group) {
  if (group.scalar) return step_lanes(group);
  const Progress progress = level_->run_lockstep(group, lockstep_);
  if (progress != Progress::few_lanes) return progress;
  turn_scalar(group);
  return Progress::turn;
}

Fault BlockRunner::run(const Dim3& block, Interrupt& interrupt) {
  return together_ ? run_together(block, interrupt) : run_apart(block, interrupt);
}

// Calculates the rows' addresses for the block. False: they are no rows, because a 32-bit index
// wraps within the block.
bool BlockRunner::find_rows() {
  const Code& code = rows_->addresses;
  std::byte* const first = row_memory_.begin();
  std::byte* const last = first + code.scalar_bytes;
  for (std::byte* frame : {first, last}) {
    fill_scalar(code, position_, 0, PresetScope::block, frame);
    Lane lane = {};
    lane.block = &state_;
    lane.frame = frame;
    level_->run_lane(lane, code.scalar(launch_->cpu));
  }
  for (std::size_t i = 0; i < row_addresses_.size(); ++i) {
    const auto [address, bytes] = rows_->rows[i];
    const std::uint32_t at = code.places[address].scalar;
    std::uint64_t from = 0, to = 0;
    std::memcpy(&from, first + at, sizeof from);
    std::memcpy(&to, last + at, sizeof to);
    if (to - from != std::uint64_t{bytes} * (threads_ - 1)) return false;
    row_addresses_[i] = from;
  }
  return true;
}

void BlockRunner::place(const Dim3& block) {
  position_.block = block;
  if (rows_ != nullptr && !find_rows()) {
    rows_ = nullptr;
    use(*launch_->kernel->code);
    position_.block = block;
  }
  for (Group& group : groups_) fill_lockstep(*code_, position_, 0, PresetScope::block, group.frame);
}

// No group waits for another one, or there is only one.
Fault BlockRunner::run_apart(const Dim3& block, Interrupt& interrupt) {
  place(block);
  for (std::uint32_t first = 0; first < threads_; first += group_lanes) {
    const std::uint32_t slot = first / group_lanes % frames_;
    Group& group = groups_[slot];
    begin_group(group, slot, first);
    for (Progress progress = Progress::turn; progress != Progress::finished;) {
      progress = step(group);
      if (progress == Progress::fault) return state_.fault.fault;
      if (code_->has_barrier) {
        release_barriers();
        if (progress == Progress::parked && group.ready_count == 0) return deadlock();
      }
      if (progress == Progress::turn && interrupt.should_stop()) return Fault::stopped;
    }
  }
  return Fault::none;
}

// All groups are under way and take turns.
Fault BlockRunner::run_together(const Dim3& block, Interrupt& interrupt) {
  begin(block);
  for (bool finished = false; !finished;) {
    const Fault fault = advance(finished, &interrupt);
    if (fault != Fault::none) return fault;
  }
  return Fault::none;
}

void BlockRunner::begin(const Dim3& block) {
  place(block);
  for (std::uint32_t i = 0; i < frames_; ++i) begin_group(groups_[i], i, i * group_lanes);
}

Fault BlockRunner::advance(bool& finished) {
  return advance(finished, nullptr);
}

// One turn of each group.
Fault BlockRunner::advance(bool& finished, Interrupt* interrupt) {
  bool ran = false, alive = false;
  for (Group& group : groups_) {
    if (group.ready_count != 0) {
      ran = true;
      const Progress progress = step(group);
      if (progress == Progress::fault) return state_.fault.fault;
      const bool asks = progress == Progress::turn && interrupt != nullptr;
      if (asks && interrupt->should_stop()) return Fault::stopped;
    }
    alive = alive || group.live != 0;
  }
  finished = !alive;
  if (finished) return Fault::none;
  release_barriers();
  if (!ran) {
    const bool released = std::any_of(groups_.begin(), groups_.end(),
                                      [](const Group& group) { return group.ready_count != 0; });
    if (!released) return deadlock();
  }
  return Fault::none;
}

// A barrier opens when the threads it names have arrived; without a number, when all threads of
// the block that have not exited have. (As on hardware since Volta: an exited thread does not
// hold up the others.)
void BlockRunner::release_barriers() {
  std::uint32_t live = 0;
  for (const Group& group : groups_) live += count_lanes(group.live);
  for (std::uint32_t id = 0; id < barrier_count; ++id) {
    Barrier& barrier = state_.barriers[id];
    const std::uint32_t expected = barrier.expected != 0 ? barrier.expected : live;
    if (barrier.arrived == 0 || barrier.arrived < expected) continue;
    for (Group& group : groups_) {
      for (std::uint32_t i = 0; i < group.parked_count;) {
        const Parked parked = group.parked[i];
        if (parked.barrier != id) {
          ++i;
          continue;
        }
        write_vote(group, parked, barrier);
        add_ready(group, parked.pc, parked.mask);
        group.parked[i] = group.parked[--group.parked_count];
      }
    }
    barrier = {};
  }
}

void BlockRunner::write_vote(Group& group, const Parked& parked, const Barrier& barrier) {
  const Instr& in = *parked.instruction;
  if (in.dst == no_offset) return;
  const auto mode = static_cast<BarrierMode>(in.immediate);
  const std::uint32_t value = mode == BarrierMode::count ? barrier.votes
                              : mode == BarrierMode::all ? barrier.votes == barrier.arrived
                                                         : barrier.votes != 0;
  const std::size_t width = mode == BarrierMode::count ? 4 : 1;
  for (std::uint64_t left = parked.mask; left != 0; left &= left - 1) {
    const std::uint32_t lane = first_lane(left);
    std::byte* at =
        group.scalar ? scalar_frame(group, lane) + in.dst : group.frame + in.dst + lane * width;
    std::memcpy(at, &value, width);
  }
}

Fault BlockRunner::deadlock() {
  for (const Group& group : groups_) {
    if (group.parked_count == 0) continue;
    const Parked& parked = group.parked[0];
    state_.fault = {Fault::deadlock, group.first_thread + first_lane(parked.mask),
                    parked.instruction->line, 0, 0};
    break;
  }
  return Fault::deadlock;
}

std::string BlockRunner::message() const {
  return describe(state_.fault, {.kernel = launch_->kernel->name,
                                 .block = position_.block,
                                 .thread = position_of(state_.fault.thread, launch_->block),
                                 .memory = state_.memory,
                                 .sources = launch_->kernel->sources.get(),
                                 .owner = launch_->owner});
}

std::uint64_t BlockRunner::take_instructions() noexcept {
  return std::exchange(state_.instructions, 0);
}

}  // namespace ctxbroker::software::exec
