// SPDX-License-Identifier: Apache-2.0
// Instance: what a plug-in remembers, as a stream of bytes.
#include <algorithm>
#include <cstring>
#include <new>

#include "ctxbroker/error.hpp"
#include "plugin/instance.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::uint64_t largest_state = std::uint64_t{1} << 30;  // bytes
// Most that one read or write moves. Partial transfers are part of the contract; a host that never
// made one would hide the plug-ins that get them wrong.
constexpr std::uint64_t largest_piece = 4096;

struct Writer {
  ctxb_output_stream stream;
  std::vector<std::byte>* bytes;
};

struct Reader {
  ctxb_input_stream stream;
  const std::vector<std::byte>* bytes;
  std::size_t position;
};

std::int64_t write(const ctxb_output_stream* stream, const void* source, std::uint64_t bytes) {
  if (stream == nullptr || stream->data == nullptr || source == nullptr || bytes == 0) return -1;
  auto& target = *static_cast<Writer*>(stream->data)->bytes;
  const std::uint64_t piece = std::min(bytes, largest_piece);
  if (target.size() + piece > largest_state) return -1;
  try {
    const auto* from = static_cast<const std::byte*>(source);
    target.insert(target.end(), from, from + piece);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return static_cast<std::int64_t>(piece);
}

std::int64_t read(const ctxb_input_stream* stream, void* destination, std::uint64_t bytes) {
  if (stream == nullptr || stream->data == nullptr || destination == nullptr || bytes == 0) {
    return -1;
  }
  auto& reader = *static_cast<Reader*>(stream->data);
  const std::uint64_t left = reader.bytes->size() - reader.position;
  const std::uint64_t piece = std::min({bytes, largest_piece, left});
  if (piece == 0) return 0;
  std::memcpy(destination, reader.bytes->data() + reader.position, piece);
  reader.position += piece;
  return static_cast<std::int64_t>(piece);
}

void check_idle(const Instance& instance, const char* what) {
  if (!instance.active()) return;
  throw Error(ErrorKind::wrong_state, std::string("the state of plug-in ") +
                                          instance.description().short_name + " cannot be " + what +
                                          " while it is active; deactivate it first");
}

}  // namespace

std::vector<std::byte> Instance::save_state() {
  check_idle(*this, "saved");
  std::vector<std::byte> bytes;
  if (state_ == nullptr) return bytes;
  Writer writer{{sizeof(ctxb_output_stream), nullptr, write}, &bytes};
  writer.stream.data = &writer;
  ctxb_status status = CTXB_ERROR;
  const CallOutcome outcome = call_main(Phase::idle, nowhere(), "save",
                                        [&] { status = state_->save(object_, &writer.stream); });
  if (!outcome.ran() || status != CTXB_OK) throw failure("save", outcome, status);
  return bytes;
}

void Instance::load_state(const std::vector<std::byte>& state) {
  check_idle(*this, "loaded");
  if (state_ == nullptr) {
    if (state.empty()) return;
    throw Error(ErrorKind::plugin_failed,
                "plug-in " + description_.short_name + " has no state to load", {.call = "load"});
  }
  Reader reader{{sizeof(ctxb_input_stream), nullptr, read}, &state, 0};
  reader.stream.data = &reader;
  ctxb_status status = CTXB_ERROR;
  const CallOutcome outcome = call_main(Phase::idle, nowhere(), "load",
                                        [&] { status = state_->load(object_, &reader.stream); });
  if (!outcome.ran() || status != CTXB_OK) throw failure("load", outcome, status);
}

}  // namespace ctxbroker::detail
