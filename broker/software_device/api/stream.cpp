// SPDX-License-Identifier: Apache-2.0
#include "api/stream.hpp"

#include <map>
#include <utility>

#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/per_thread.hpp"
#include "api/process.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

// A thread's default stream of each context it used one in.
struct ThreadStreams {
  std::map<Context*, std::shared_ptr<Stream>> by_context;
};

std::shared_ptr<Stream> thread_stream(Context& context) {
  auto& streams = per_thread<ThreadStreams>().by_context;
  std::shared_ptr<Stream>& stream = streams[&context];
  if (!stream) {
    std::erase_if(
        streams, [&](const auto& entry) { return entry.first != &context && !entry.first->alive; });
    stream = std::make_shared<Stream>(context, Ordering::blocking, CU_STREAM_DEFAULT, 0);
  }
  return stream;
}

}  // namespace

Stream::Stream(Context& of, Ordering how, unsigned its_flags, int its_priority)
    : context(of), id(next_id()), flags(its_flags) {
  group = &of;
  family = &of.owner;
  ordering = how;
  priority = its_priority;
  legacy = of.legacy_stream.get();
}

Stream::~Stream() = default;

std::shared_ptr<Stream> find_stream(CUstream handle) {
  if (handle == nullptr || handle == CU_STREAM_LEGACY) return working_context().legacy_stream;
  if (handle == CU_STREAM_PER_THREAD) {
    Context& context = working_context();
    check_that(context.kind != ContextKind::green, CUDA_ERROR_INVALID_HANDLE);
    return thread_stream(context);
  }
  Process& process = Process::instance();
  check_that(!process.ended_streams.has(handle), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  std::shared_ptr<Stream> stream = process.streams.find(handle);
  stream->context.check_alive();
  return stream;
}

void EndedStreams::add(const std::vector<std::shared_ptr<Stream>>& streams) {
  const std::lock_guard lock(mutex_);
  for (const auto& stream : streams) handles_.insert(stream->handle);
}

bool EndedStreams::has(CUstream handle) const {
  const std::lock_guard lock(mutex_);
  return handles_.count(handle) != 0;
}

void enqueue(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Command>& command) {
  Context& context = stream->context;
  check_use(*stream);
  if (capture_command(stream, *command)) return;
  context.device.executor.enqueue(stream, command, [&] { context.check_alive(); });
}

CUresult wait_for(Context& context, const std::vector<std::shared_ptr<Command>>& commands) {
  if (!commands.empty()) context.device.executor.wait(commands);
  return Process::fault();
}

}  // namespace ctxbroker::software
