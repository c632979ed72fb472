// SPDX-License-Identifier: Apache-2.0
// The documents that a graph and its worker exchange, and the states of plug-ins that go with them.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "limits/limits.hpp"
#include "worker/graph_client.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {

DocumentReply GraphClient::send_document(const DocumentMessage& message, GraphCall type) {
  DocumentReply reply;
  const std::size_t got = worker_.impl_->call(
      {type, 0, &message, sizeof message}, &reply, sizeof reply,
      type == graph_question ? options_.worker.call_timeout : options_.worker.start_timeout,
      WorkerImpl::Absent::refuse);
  const std::uint64_t most_states = nodes_.size() * limits::plugin_state.most;
  if (got != sizeof reply || reply.bytes > longest_document || reply.state_bytes > most_states ||
      (reply.fits != 0 && reply.bytes + reply.state_bytes > document_.bytes())) {
    refuse("it answered with a length that cannot be right");
  }
  if (reply.failed > 1) stale();
  return reply;
}

GraphClient::Answer GraphClient::exchange(GraphCall type, const Json& question,
                                          std::span<const std::byte> state, States wanted) {
  const std::string text = dumped(question);
  constexpr std::size_t least = 65536;
  const auto make_room = [&](std::size_t bytes) {
    if (document_.bytes() >= bytes) return;
    document_ =
        WorkerBuffer(worker_.impl_->lend(std::max(least, bytes), WorkerImpl::LentTo::this_process));
  };
  make_room(text.size() + state.size());
  auto* const begin = static_cast<std::byte*>(document_.data());
  std::memcpy(begin, text.data(), text.size());
  if (!state.empty()) std::memcpy(begin + text.size(), state.data(), state.size());
  DocumentReply reply =
      send_document({epoch_, document_.handle(), text.size(), state.size()}, type);
  const bool failed = reply.failed != 0;
  if (reply.fits == 0) {
    make_room(reply.bytes + reply.state_bytes);
    reply = send_document({epoch_, document_.handle(), 0, 0}, graph_more);
    if (reply.fits == 0) refuse("its answer grows while it is fetched");
  }
  if (reply.state_bytes != 0 && (failed || wanted == States::none)) {
    refuse("it sent a state that it was not asked for");
  }
  const auto* const answer = static_cast<const std::byte*>(document_.data());
  const std::string copy(reinterpret_cast<const char*>(answer), reply.bytes);
  Json json = read([&] { return json::parse(copy, "the answer"); });
  if (reply.state_bytes == 0) drop_large_document();
  if (failed) throw read([&] { return read_error(json); });
  if (reply.state_bytes == 0) return {std::move(json), {}};
  return {std::move(json), {answer + reply.bytes, reply.state_bytes}};
}

Json GraphClient::ask(GraphCall type, const Json& question, std::span<const std::byte> state) {
  return exchange(type, question, state, States::none).json;
}

// The answer says how many bytes each state has. Null: there is none.
std::vector<GraphClient::State> GraphClient::take_states(const Answer& answer, std::size_t count) {
  std::vector<State> states;
  read([&] {
    const Json& sizes = answer.json.at("states");
    if (sizes.size() != count) throw json::DocumentError("states are missing");
    std::span<const std::byte> left = answer.states;
    for (const Json& one : sizes) {
      if (one.is_null()) {
        states.emplace_back();
        continue;
      }
      const auto bytes = json::whole_number(one, left.size());
      if (!bytes) throw json::DocumentError("a state is longer than the bytes that came");
      const auto its = left.first(*bytes);
      states.push_back(std::make_shared<const std::vector<std::byte>>(its.begin(), its.end()));
      left = left.subspan(*bytes);
    }
    if (!left.empty()) throw json::DocumentError("more bytes came than the states have");
  });
  drop_large_document();
  return states;
}

// Memory for a large state is not kept for the next question.
void GraphClient::drop_large_document() noexcept {
  constexpr std::size_t most_kept = std::size_t{1} << 20;
  if (document_.bytes() > most_kept) document_ = {};
}

}  // namespace ctxbroker::detail
