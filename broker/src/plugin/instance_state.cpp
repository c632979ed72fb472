// SPDX-License-Identifier: Apache-2.0
// Instance: what a plug-in remembers, as a stream of bytes.
#include <algorithm>
#include <cstring>
#include <new>

#include "ctxbroker/error.hpp"
#include "limits/limits.hpp"
#include "plugin/instance.hpp"
#include "plugin/state_streams.hpp"

namespace ctxbroker::detail {
namespace {

// Most that one read or write moves. Partial transfers are part of the contract; a host that never
// made one would hide the plug-ins that get them wrong.
constexpr std::uint64_t largest_piece = 4096;

void strike_use(const ctxb_host* host, const char* function, const char* text) noexcept {
  const InstanceUse used(host, function);
  if (used.instance() == nullptr) return;  // that was a strike
  const HostFrame frame;
  used.instance()->strike(function, text);
}

// For the error of the save that is under way. Throws std::bad_alloc.
void note_too_large(const ctxb_host* host) {
  const InstanceUse used(host, "write");
  if (used.instance() == nullptr) return;
  used.instance()->failures().host_refused(
      {CTXB_ERROR_UNSUPPORTED, 0,
       std::string("write: it would be ") + limits::beyond(limits::plugin_state)});
}

std::int64_t write_state(const ctxb_output_stream* stream, const void* source,
                         std::uint64_t bytes) {
  if (stream == nullptr || stream->data == nullptr) return -1;
  return static_cast<StateStreams*>(stream->data)->write(source, bytes);
}

std::int64_t read_state(const ctxb_input_stream* stream, void* destination, std::uint64_t bytes) {
  if (stream == nullptr || stream->data == nullptr) return -1;
  return static_cast<StateStreams*>(stream->data)->read(destination, bytes);
}

void check_idle(const Instance& instance, const char* what) {
  if (!instance.active()) return;
  throw Error(ErrorKind::wrong_state, std::string("the state of plug-in ") +
                                          instance.description().short_name + " cannot be " + what +
                                          " while it is active; deactivate it first");
}

}  // namespace

StateStreams::StateStreams(const ctxb_host* its_host) noexcept
    : output{sizeof output, this, write_state},
      input{sizeof input, this, read_state},
      host_(its_host) {}

std::int64_t StateStreams::write(const void* from, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  if (target_ == nullptr) {
    strike_use(host_, "write", "refused, because the stream is lent until save returns");
    return -1;
  }
  const std::uint64_t room = limits::plugin_state.most - target_->size();
  const std::uint64_t piece = std::min({bytes, largest_piece, room});
  if (from == nullptr || bytes == 0) return -1;
  try {
    if (room == 0) {
      note_too_large(host_);
      return -1;
    }
    const auto* const first = static_cast<const std::byte*>(from);
    target_->insert(target_->end(), first, first + piece);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return static_cast<std::int64_t>(piece);
}

std::int64_t StateStreams::read(void* to, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  if (!source_) {
    strike_use(host_, "read", "refused, because the stream is lent until load returns");
    return -1;
  }
  if (to == nullptr || bytes == 0) return -1;
  const std::uint64_t piece = std::min({bytes, largest_piece, source_->size() - position_});
  if (piece == 0) return 0;
  std::memcpy(to, source_->data() + position_, piece);
  position_ += piece;
  return static_cast<std::int64_t>(piece);
}

void StateStreams::lend(std::vector<std::byte>* its_target,
                        std::optional<std::span<const std::byte>> its_source) {
  const std::lock_guard lock(mutex_);
  target_ = its_target;
  source_ = its_source;
  position_ = 0;
}

std::vector<std::byte> Instance::save_state() {
  check_idle(*this, "saved");
  std::vector<std::byte> bytes;
  if (state_ == nullptr) return bytes;
  StateStreams& streams = host_.streams();
  streams.lend(&bytes, {});
  ctxb_status status = CTXB_ERROR;
  const CallOutcome outcome = call_main(Phase::idle, nowhere(), "save",
                                        [&] { status = state_->save(object_, &streams.output); });
  streams.lend(nullptr, {});
  if (!outcome.ran() || status != CTXB_OK) throw failure("save", outcome, status);
  return bytes;
}

void Instance::load_state(std::span<const std::byte> state) {
  check_idle(*this, "loaded");
  if (state_ == nullptr) {
    if (state.empty()) return;
    throw Error(ErrorKind::plugin_failed,
                "plug-in " + description_.short_name + " has no state to load", {.call = "load"});
  }
  StateStreams& streams = host_.streams();
  streams.lend(nullptr, state);
  ctxb_status status = CTXB_ERROR;
  const CallOutcome outcome = call_main(Phase::idle, nowhere(), "load",
                                        [&] { status = state_->load(object_, &streams.input); });
  streams.lend(nullptr, {});
  if (!outcome.ran() || status != CTXB_OK) throw failure("load", outcome, status);
}

}  // namespace ctxbroker::detail
