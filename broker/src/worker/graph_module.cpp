// SPDX-License-Identifier: Apache-2.0
// The worker's module for graphs: reads the host's messages, and writes the answers.
#include "worker/graph_module.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "ctxbroker/crash_report.hpp"
#include "ctxbroker/error.hpp"
#include "worker/graph_served.hpp"
#include "worker/graph_wire.hpp"

namespace ctxbroker::detail {
namespace {

const ctxb_worker_host* host = nullptr;
std::unique_ptr<Served> served;
std::string waiting_answer;  // for graph_more
States waiting_states;       // likewise

// Runs the work; false, with the error's text, when it has failed. A lost context passes: a new
// process is a better place for what comes.
template <typename Work>
bool attempt(std::string& text, const Work& work) {
  try {
    work();
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::context_lost) throw;
    text = dumped(to_json(error));
  } catch (const std::bad_alloc&) {
    text = dumped(to_json(Error(ErrorKind::out_of_host_memory,
                                "the worker has no more memory; raise WorkerOptions::memory_limit, "
                                "or free memory of the system")));
  } catch (const std::exception& error) {
    text = dumped(to_json(Error(ErrorKind::plugin_failed, error.what())));
  }
  return false;
}

Json answer_of(std::uint32_t type, std::uint64_t epoch, const std::string& text,
               std::span<const std::byte> state) {
  const Json ask = json::parse(text, "the host's message");
  if (type == graph_open) return served->open(epoch, ask);
  switch (type) {
    case graph_create:
      return served->create(ask);
    case graph_restore:
      return served->restore(ask, state);
    case graph_question:
      return served->question(ask);
    case graph_load_preset:
      return served->load_preset(ask, state);
    case graph_save_preset:
      return served->save_preset(ask, waiting_states);
    case graph_set:
      return served->set(ask);
    case graph_activate:
      return served->activate(ask);
    case graph_timeline:
      return served->write_timeline(ask);
    case graph_lend_device:
      return served->lend_device(ask);
    case graph_take_back_device:
      return served->take_back_device(ask);
    case graph_make_device:
      return served->make_device(ask);
    case graph_deactivate:
      return served->deactivate(waiting_states);
    default:
      check_message(false, "its type is not known");
  }
  return {};
}

void forget_answer() noexcept {
  waiting_answer.clear();
  waiting_states.clear();
}

void answer_document(const ctxb_worker_message& message, ctxb_worker_reply& to) {
  DocumentMessage asked;
  check_message(message.bytes == sizeof asked && to.capacity >= sizeof(DocumentReply), "its size");
  std::memcpy(&asked, message.data, sizeof asked);
  void* memory = nullptr;
  std::uint64_t size = 0;
  check_message(host->buffer(asked.block, &memory, &size) == CTXB_OK && asked.bytes <= size &&
                    asked.state_bytes <= size - asked.bytes,
                "its block is not lent, or too small");
  auto* at = static_cast<std::byte*>(memory);
  DocumentReply reply;
  if (message.type != graph_more) forget_answer();
  if (message.type != graph_open && asked.epoch != served->epoch()) {
    reply.failed = other_set_up;
    forget_answer();
  } else if (message.type != graph_more) {
    const std::string text(static_cast<const char*>(memory), asked.bytes);
    const std::span<const std::byte> state(at + asked.bytes, asked.state_bytes);
    const bool good = attempt(waiting_answer, [&] {
      waiting_answer = dumped(answer_of(message.type, asked.epoch, text, state));
    });
    reply.failed = good ? 0 : 1;
    if (!good) waiting_states.clear();
  }
  reply.bytes = waiting_answer.size();
  for (const auto& state : waiting_states) reply.state_bytes += state.size();
  if (reply.bytes + reply.state_bytes <= size) {
    at = std::copy_n(reinterpret_cast<const std::byte*>(waiting_answer.data()), reply.bytes, at);
    for (const auto& state : waiting_states) at = std::copy(state.begin(), state.end(), at);
    reply.fits = 1;
    forget_answer();
  }
  std::memcpy(to.data, &reply, sizeof reply);
  to.bytes = sizeof reply;
}

void answer_job(const ctxb_worker_message& message, ctxb_worker_reply& to) {
  JobMessage asked;
  JobReply reply;
  check_message(message.bytes == sizeof asked && to.capacity >= sizeof reply, "its size");
  std::memcpy(&asked, message.data, sizeof asked);
  std::string text;
  const bool is_stale = asked.epoch != served->epoch();
  const bool good = is_stale || attempt(text, [&] { served->run(message.type, asked, reply); });
  if (is_stale) reply.failed = other_set_up;
  if (!good) reply.failed = 1;
  std::memcpy(to.data, &reply, sizeof reply);
  to.bytes = sizeof reply;
  if (good) return;
  const std::size_t room = static_cast<std::size_t>(to.capacity) - sizeof reply;
  if (text.size() > room) {
    text = dumped(to_json(
        Error(ErrorKind::plugin_failed, "a plug-in failed, and the text is too long: " +
                                            text.substr(0, std::min<std::size_t>(room / 4, 512)))));
  }
  std::memcpy(static_cast<std::byte*>(to.data) + sizeof reply, text.data(), text.size());
  to.bytes += text.size();
}

ctxb_status start(const ctxb_worker_host* functions) {
  host = functions;
  name_crashes(true);
  served = std::make_unique<Served>(host);
  return CTXB_OK;
}

ctxb_status handle(const ctxb_worker_message* message, ctxb_worker_reply* reply) {
  try {
    if (message->type < graph_process) {
      answer_document(*message, *reply);
    } else {
      answer_job(*message, *reply);
    }
    served->poll();
    return CTXB_OK;
  } catch (const Error& error) {
    host->fail(error.what());
    return error.kind() == ErrorKind::context_lost ? CTXB_ERROR_CONTEXT_LOST : CTXB_ERROR;
  }
}

}  // namespace

const ctxb_worker_module graph_module{
    sizeof(ctxb_worker_module),
    CTXB_WORKER_ABI,
    start,
    handle,
    nullptr,
    [](std::uint64_t block, void*) { served->forget_block(block); },
    [] { served.reset(); }};

}  // namespace ctxbroker::detail
