// SPDX-License-Identifier: Apache-2.0
// Any bytes from the other side of a worker's channel: the host gets a checked answer or an error,
// and the worker a checked request, a packet that is whole, or none. Of a graph's own messages, the
// host reads any answer, and the worker any table of a job.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ctxbroker/error.hpp"
#include "ctxbroker/metrics.hpp"
#include "plugin/description_json.hpp"
#include "worker/graph_served.hpp"
#include "worker/graph_wire.hpp"
#include "worker/host_channel.hpp"
#include "worker/packet.hpp"
#include "worker/worker_channel.hpp"

namespace {

using namespace ctxbroker::detail;
using ctxbroker::json::DocumentError;

constexpr Shape shape{2, 256};

struct alignas(64) Line {
  std::array<std::byte, 64> bytes{};
};
using Memory = std::vector<Line>;

Memory memory_of_channel() {
  return Memory(channel_bytes(shape) / sizeof(Line));
}
std::byte* begin_of(Memory& memory) {
  return memory.front().bytes.data();
}

// The worker writes the bytes over the cell of a call that waits, the state last.
void lie_to_host(const std::uint8_t* data, std::size_t size) {
  Memory memory = memory_of_channel();
  HostChannel host(begin_of(memory), shape, std::chrono::microseconds(5));
  CellHead& cell = cell_of(begin_of(memory), shape, 0);
  std::thread liar([&] {
    while (cell.state != static_cast<std::uint32_t>(CellState::request)) std::this_thread::yield();
    std::array<SharedWord*, 4> words{&cell.sequence, &cell.bytes, &cell.status, &cell.state};
    for (std::size_t i = 0; i < words.size() && size >= 4 * (i + 1); ++i) {
      std::uint32_t value = 0;
      std::memcpy(&value, data + 4 * i, sizeof value);
      *words[i] = value;
    }
    futex_wake(cell.state);
  });
  std::array<char, 96> answer{};
  const CallResult result =
      host.call({1, 2, "abc", 3}, answer.data(), 64, Clock::now() + std::chrono::milliseconds(1));
  liar.join();
  if (result.end == ReplyOutcome::replied && result.bytes > 64) std::abort();
  if (std::any_of(answer.begin() + 64, answer.end(), [](char c) { return c != 0; })) std::abort();
  if (result.text.back() != 0) std::abort();
  if (result.end == ReplyOutcome::lie && result.text[0] == 0) std::abort();
  host.end();
}

// The host has filled the channel with the bytes.
void lie_to_worker(const std::uint8_t* data, std::size_t size) {
  Memory memory = memory_of_channel();
  if (size != 0) std::memcpy(begin_of(memory), data, std::min(size, channel_bytes(shape)));
  for (std::uint32_t i = 0; i < shape.cells; ++i) {  // so that there is something to take
    cell_of(begin_of(memory), shape, i).state = static_cast<std::uint32_t>(CellState::request);
  }
  WorkerChannel worker(begin_of(memory), shape, {});
  const std::vector<char> answer(4 * shape.message_bytes, 'x');
  for (std::uint32_t left = shape.cells; left > 0; --left) {
    const CellHead& one = cell_of(begin_of(memory), shape, 0);
    const CellHead& two = cell_of(begin_of(memory), shape, 1);
    const bool good = (one.state == 1 && one.bytes <= shape.message_bytes) ||
                      (two.state == 1 && two.bytes <= shape.message_bytes);
    if (!good) return;  // it would wait for the next request
    Request request;
    if (!worker.take(request)) std::abort();
    if (request.bytes > shape.message_bytes || request.cell >= shape.cells) std::abort();
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < request.bytes; ++i) {
      sum += std::to_integer<std::uint32_t>(request.data[i]);
    }
    worker.reply(request, static_cast<std::int32_t>(sum % 3) - 1, answer.data(), answer.size());
    if (cell_of(begin_of(memory), shape, request.cell).bytes > shape.message_bytes) std::abort();
  }
}

void read_packet(const std::uint8_t* data, std::size_t size) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(data);
  PacketHead head;
  Hello hello;
  if (!read_head(bytes, size, head)) return;
  if (head.bytes != size - sizeof head) std::abort();
  if (!read_hello(bytes + sizeof head, head.bytes, hello)) return;
  if (channel_bytes(hello.shape) > std::size_t{16} << 20) std::abort();
}

// Reads a document, writes it, and does the same with the written one. Both must be written in the
// same way.
template <typename Read, typename Write>
void read_twice(const Json& answer, const Read& read, const Write& write) {
  Json written;
  try {
    written = write(read(answer));
  } catch (const Json::exception&) {
    return;
  } catch (const DocumentError&) {
    return;
  }
  if (write(read(written)) != written) std::abort();
}

// A worker's answer, for each of the host's readers. They throw no other exceptions.
void read_answer(const std::uint8_t* data, std::size_t size) {
  Json answer;
  try {
    answer = ctxbroker::json::parse({reinterpret_cast<const char*>(data), size}, "the answer");
  } catch (const DocumentError&) {
    return;
  }
  const auto written = [](const auto& value) { return to_json(value); };
  read_twice(answer, read_error, written);
  read_twice(answer, read_ports, written);
  read_twice(answer, read_instance_options, written);
  read_twice(answer, read_graph_options, written);
  read_twice(answer, read_job, written);
  read_twice(answer, read_region, written);
  read_twice(answer, read_value, written);
  read_twice(answer, read_metrics, [](const ctxbroker::BrokerMetrics& metrics) {
    return Json::parse(ctxbroker::to_json(metrics));
  });
  read_twice(
      answer,
      [](const Json& json) {
        return ctxbroker::detail::read_plugins(json, {"the answer", "$"}, "fuzz.so");
      },
      written);
}

// The job's block, and another one that is lent.
struct Block {
  std::byte* begin;
  std::uint64_t bytes;
};
std::array<Block, 2> blocks;

ctxb_status find_block(std::uint64_t handle, void** memory, std::uint64_t* bytes) {
  if (handle == 0 || handle > blocks.size()) return CTXB_ERROR_NOT_FOUND;
  *memory = blocks[handle - 1].begin;
  *bytes = blocks[handle - 1].bytes;
  return CTXB_OK;
}

// A byte that says which buffers have to be on the device, a message, and its block.
void read_job_table(const std::uint8_t* data, std::size_t size) {
  JobMessage message;
  if (size < 1 + sizeof message) return;
  std::vector<bool> on_device;
  for (unsigned bit = 0; bit < 8; ++bit) on_device.push_back((*data >> bit & 1U) != 0);
  std::memcpy(&message, data + 1, sizeof message);
  std::vector<std::byte> own(size - 1 - sizeof message), other(64);
  if (!own.empty()) std::memcpy(own.data(), data + 1 + sizeof message, own.size());
  blocks = {Block{own.data(), own.size()}, Block{other.data(), other.size()}};
  ctxb_worker_host host{};
  host.buffer = find_block;
  JobTable read;
  try {
    read_table(host, message, on_device, {}, read);
  } catch (const ctxbroker::Error& error) {
    if (error.kind() != ctxbroker::ErrorKind::wrong_state) std::abort();
    return;
  }
  if (read.buffers.inputs.size() != message.inputs ||
      read.buffers.outputs.size() != message.outputs || read.extents.size() != message.extents ||
      read.changes.size() != message.changes) {
    std::abort();
  }
  const Block& job = blocks.at(message.block - 1);
  for (std::size_t i = 0; i < message.inputs + message.outputs; ++i) {
    BufferPlace place;
    std::memcpy(&place, job.begin + i * sizeof place, sizeof place);
    const Block in =
        place.block == 0 ? Block{job.begin, message.bytes} : blocks.at(place.block - 1);
    if (place.offset > in.bytes || place.bytes > in.bytes - place.offset) std::abort();
    const void* const buffer =
        i < message.inputs ? read.buffers.inputs[i] : read.buffers.outputs[i - message.inputs];
    if (buffer != in.begin + place.offset) std::abort();
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  constexpr std::array parts{lie_to_host, lie_to_worker, read_packet, read_answer, read_job_table};
  // A copy of its own length, so that a sanitizer sees the first byte behind it.
  const std::vector<std::uint8_t> rest(data + 1, data + size);
  parts[*data % parts.size()](rest.data(), rest.size());
  return 0;
}
