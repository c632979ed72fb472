// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/worker.hpp"

#include <array>
#include <utility>

#include "ctxbroker/error.hpp"
#include "observe/enum_names.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker {

const char* to_string(WorkerState state) noexcept {
  constexpr std::array names{"missing", "starting", "ready", "failed", "quarantined", "closed"};
  return detail::name_of(names, state);
}

const char* to_string(WorkerExitCause cause) noexcept {
  constexpr std::array names{"exited",  "signal", "out-of-memory", "late",
                             "stopped", "lie",    "cuda-ended",    "by-host"};
  return detail::name_of(names, cause);
}

Worker::Worker(WorkerOptions options) : impl_(detail::WorkerImpl::make(std::move(options))) {}
Worker::Worker(Worker&&) noexcept = default;
Worker& Worker::operator=(Worker&& other) noexcept {
  if (this != &other) {
    close();
    impl_ = std::move(other.impl_);
  }
  return *this;
}
Worker::~Worker() {
  close();
}

void Worker::start() {
  impl_->start();
}
std::size_t Worker::call(const WorkerMessage& message, void* reply, std::size_t capacity,
                         std::chrono::microseconds timeout) {
  if (message.type >= detail::first_own_type) {
    throw Error(ErrorKind::invalid_argument, "WorkerMessage::type must be below 0xFFFF0000");
  }
  return impl_->call(message, reply, capacity, timeout);
}
WorkerBuffer Worker::lend(std::size_t bytes) {
  return WorkerBuffer(impl_->lend(bytes));
}
bool Worker::is_lent(std::uint64_t handle, std::uint64_t bytes) const {
  return impl_->is_lent(handle, bytes);
}
std::uint64_t Worker::pass_descriptor(int descriptor) {
  return impl_->pass_descriptor(descriptor);
}
int Worker::take_descriptor(std::uint64_t number) {
  return impl_->take_descriptor(number);
}
WorkerState Worker::state() const {
  return impl_->state();
}
std::string Worker::reason() const {
  return impl_->reason();
}
std::optional<WorkerExit> Worker::last_exit() const {
  return impl_->last_exit();
}
std::uint64_t Worker::exits() const {
  return impl_->exits();
}
int Worker::process_id() const {
  return impl_->process_id();
}
void Worker::kill(const std::string& reason) {
  impl_->kill(reason);
}
void Worker::pardon() {
  impl_->pardon();
}
void Worker::close() noexcept {
  if (impl_) impl_->close();
}

WorkerBuffer& WorkerBuffer::operator=(WorkerBuffer&& other) noexcept {
  WorkerBuffer taken(std::move(other));  // what this one had is taken back at the end
  std::swap(block_, taken.block_);
  return *this;
}
WorkerBuffer::~WorkerBuffer() {
  if (!block_ || !block_->maker.is_this_process()) return;
  block_->is_over = true;
  if (block_->jobs != 0) return;
  if (const auto owner = block_->find_owner()) owner->take_back(*block_);
}
void* WorkerBuffer::data() const& noexcept {
  return block_ ? block_->pages->begin() : nullptr;
}
std::size_t WorkerBuffer::bytes() const noexcept {
  return block_ ? block_->pages->bytes() : 0;
}
std::uint64_t WorkerBuffer::handle() const noexcept {
  return block_ ? block_->handle.load() : 0;
}

}  // namespace ctxbroker
