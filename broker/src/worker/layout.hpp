// SPDX-License-Identifier: Apache-2.0
// The data that a host and its worker share, defined once. Everything here that the worker can
// write is untrusted: the host reads each field once, checks it, and works with its copy.
//
// SOCKET: an unnamed pair of SOCK_SEQPACKET, descriptor 3 of the worker. Each packet is a
// PacketHead and `bytes` bytes, with at most one descriptor.
//   host -> worker  hello         the first packet: a Hello and the module's path; the channel's
//   memfd
//                   descriptor    `number` names it; lent blocks come so, too
//   worker -> host  notification  `number` is its type
//                   descriptor    `number` names it; it is of memory
// The end of the socket ends the worker. A worker that closes it is ended.
//
// MEMORY: a memfd that is sealed against any change of its size. A Control, then what runs in the
// worker, then `cells` cells, each a CellHead and room for `message_bytes` bytes.
//
// SLOT: carries one call at a time. `state` goes round, and each step has one side that may take
// it:
//
//     idle --host--> request --worker--> taken --worker--> reply --host--> idle
//
// The host keeps in its own memory which cells are in use and what is in them. So there are no ring
// indices that a worker could bend: a cell that is not in use must be idle, a cell in use must
// follow the circle, and a reply must repeat the request's sequence number.
//
// WAKING: the host rings `doorbell` after a request, the worker changes `state`. Who waits looks
// for a while, then says that it sleeps, looks once more, and sleeps on the futex.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "observe/running.hpp"

namespace ctxbroker::detail {

using SharedWord = std::atomic<std::uint32_t>;
static_assert(SharedWord::is_always_lock_free);

constexpr int worker_socket = 3;
constexpr std::uint32_t packet_magic = 0x31574243;  // "CBW1": the version of all this

enum class PacketKind : std::uint32_t { hello = 1, descriptor = 2, notification = 3 };

struct PacketHead {
  std::uint32_t magic = packet_magic;
  PacketKind kind = PacketKind::hello;
  std::uint64_t number = 0;
  std::uint32_t bytes = 0;
  std::uint32_t reserved = 0;
};

struct Shape {
  std::uint32_t cells = 0;
  std::uint32_t message_bytes = 0;  // a multiple of 64
};

struct Hello {
  Shape shape;
  std::uint32_t threads = 0;
  std::uint32_t spin_us = 0;
  std::uint32_t no_network = 0;          // WorkerOptions::network is false
  std::uint32_t no_other_processes = 0;  // WorkerOptions::other_processes is false
};

constexpr std::uint32_t most_cells = 64;
constexpr std::uint32_t most_threads = 64;
constexpr std::uint32_t most_message_bytes = 128 << 10;
constexpr std::size_t most_packet_bytes = sizeof(PacketHead) + most_message_bytes;
constexpr std::uint32_t most_lent = 4096;

struct alignas(64) Control {
  SharedWord doorbell;      // host: one more request
  SharedWord sleepers;      // worker: threads that sleep on the doorbell
  SharedWord heartbeat;     // worker: it runs
  SharedWord memory_short;  // worker: an allocation failed; a hint
};

// The functions of plug-ins that run, so that the host can name them when the process has ended.
struct alignas(64) RunningCopies {
  RunningCopy copies[32];
};

enum class CellState : std::uint32_t { idle, request, taken, reply };

struct alignas(64) CellHead {
  SharedWord state;
  SharedWord host_sleeps;  // host: it sleeps on `state`
  SharedWord sequence;     // host writes, worker repeats
  SharedWord type;         // host
  SharedWord subject_low;  // host
  SharedWord subject_high;
  SharedWord capacity;  // host: the longest answer that it takes
  SharedWord bytes;     // of the request, then of the reply
  SharedWord status;    // worker: a ctxb_status. If it is negative, the reply is a text
};

constexpr std::size_t cell_bytes(const Shape& shape) noexcept {
  return sizeof(CellHead) + shape.message_bytes;
}
constexpr std::size_t channel_bytes(const Shape& shape) noexcept {
  return sizeof(Control) + sizeof(RunningCopies) + shape.cells * cell_bytes(shape);
}
inline Control& control_of(std::byte* memory) noexcept {
  return *reinterpret_cast<Control*>(memory);
}
inline RunningCopies& running_of(std::byte* memory) noexcept {
  return *reinterpret_cast<RunningCopies*>(memory + sizeof(Control));
}
inline CellHead& cell_of(std::byte* memory, const Shape& shape, std::uint32_t cell) noexcept {
  return *reinterpret_cast<CellHead*>(memory + sizeof(Control) + sizeof(RunningCopies) +
                                      cell * cell_bytes(shape));
}
inline std::byte* bytes_of(CellHead& cell) noexcept {
  return reinterpret_cast<std::byte*>(&cell) + sizeof(CellHead);
}

// Calls of the library's own. A host's types are below.
constexpr std::uint32_t first_own_type = 0xFFFF0000;
constexpr std::uint32_t start_type = first_own_type;          // load and start the module
constexpr std::uint32_t stop_type = first_own_type + 1;       // the last call
constexpr std::uint32_t lend_type = first_own_type + 2;       // a BlockName
constexpr std::uint32_t take_back_type = first_own_type + 3;  // a BlockName

// Types from here on go to the library's own module, which runs a graph: see graph_wire.hpp.
constexpr std::uint32_t first_graph_type = first_own_type + 0x100;

struct BlockName {
  std::uint64_t handle = 0;
  std::uint64_t bytes = 0;
};

}  // namespace ctxbroker::detail
