// SPDX-License-Identifier: Apache-2.0
// Buffers of jobs that lie in the host's device memory.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "context/shared_memory.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/error.hpp"
#include "plugin/access.hpp"
#include "worker/graph_client.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker {
namespace detail {
namespace {

std::shared_ptr<LentDevice> lent_device(const ctxbroker::DeviceMemory& memory) {
  auto lent = std::make_shared<LentDevice>();
  try {
    const ExportedMemory exported = Access::exported(memory);
    lent->file = Descriptor(exported.descriptor);
    lent->device = exported.device;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_argument) throw;
    throw Error(ErrorKind::invalid_argument,
                "graph: the memory cannot be lent, because only memory from "
                "DeviceMemory::shareable can: " +
                    std::string(error.what()));
  }
  lent->address = memory.address();
  lent->bytes = memory.bytes();
  return lent;
}

}  // namespace

WorkerDeviceBuffer GraphClient::lend(const ctxbroker::DeviceMemory& memory) {
  const std::shared_ptr<LentDevice> lent = lent_device(memory);
  if (lent->device != description_.device) {
    throw Error(ErrorKind::invalid_argument,
                "graph: the memory is on device " + std::to_string(lent->device) +
                    ", and the ports of the graph are on device " +
                    std::to_string(description_.device) + " (WorkerGraphDescription::device)");
  }
  set_up();
  WorkerDeviceBuffer buffer = register_lent(lent);
  give(*lent);
  return buffer;
}

WorkerDeviceBuffer GraphClient::register_lent(std::shared_ptr<LentDevice> lent) {
  lent->owner = lent_devices_;
  lent->handle = ++lent_devices_->last_handle;
  lent_devices_->all.push_back(lent);
  return WorkerDeviceBuffer(std::move(lent));
}

void GraphClient::make_relay(const void* name, std::uint64_t bytes, int device) {
  set_up();
  take_relay(Descriptor(), name, bytes, device);
}

Descriptor GraphClient::release_relay(const void* name) {
  const auto& all = lent_devices_->all;
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& one) {
    return one->is_made && one->address == reinterpret_cast<std::uintptr_t>(name);
  });
  return found != all.end() ? std::move((*found)->file) : Descriptor();
}

// Without a file, the process makes it. If the process ends here, the next one gets it.
void GraphClient::take_relay(Descriptor file, const void* name, std::uint64_t bytes, int device) {
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(name));
  std::erase_if(relays_, [&](const auto& one) { return one.address() == address; });
  const auto lent = std::make_shared<LentDevice>();
  lent->is_made = file.get() < 0;
  lent->file = std::move(file);
  lent->address = address;
  lent->bytes = bytes;
  lent->device = device;
  relays_.push_back(register_lent(lent));
  try {
    if (is_set_up()) give(*lent);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::context_lost) relays_.pop_back();
    throw;
  }
}

// Only to the process that knows the graph.
std::uint64_t GraphClient::pass(const Descriptor& file) {
  return worker_.impl_->pass_descriptor(file.get(), WorkerImpl::Absent::refuse);
}

void GraphClient::give(LentDevice& device) {
  const std::uint64_t file = device.is_made ? ++lent_devices_->last_handle : pass(device.file);
  ask(device.is_made ? graph_make_device : graph_lend_device, {{"file", file},
                                                               {"handle", device.handle},
                                                               {"bytes", device.bytes},
                                                               {"device", device.device}});
  if (!device.is_made) return;
  // The descriptor is sent apart from the answer, so it may arrive later.
  constexpr int most_looks = 1000;
  for (int look = 0; look < most_looks; ++look) {
    device.file = Descriptor(worker_.take_descriptor(file));
    if (device.file.get() >= 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  refuse("it has made device memory, and did not pass its descriptor");
}

void GraphClient::take_back(LentDevice& device) noexcept {
  std::erase_if(lent_devices_->all, [&](const auto& one) { return one.get() == &device; });
  device.file.close();
  try {
    if (is_set_up()) ask(graph_take_back_device, {{"handle", device.handle}});
  } catch (...) {  // NOLINT(bugprone-empty-catch): the process is at its end, and was told of
  }
}

void GraphClient::end_devices(Flight& flight) noexcept {
  for (const auto& device : flight.devices) {
    if (--device->jobs != 0 || !device->is_over) continue;
    if (const auto owner = device->owner.lock()) owner->client.take_back(*device);
  }
  flight.devices.clear();
}

// The buffers of a job are inputs, then outputs.
const GraphPort& GraphClient::port_of(std::size_t buffer) const {
  const std::size_t inputs = job_inputs_.size();
  return buffer < inputs ? description_.inputs[job_inputs_[buffer].input]
                         : description_.outputs[buffer - inputs];
}

// Finds the lent memory that the buffer lies in. Memory that the host does not lend any more does
// not count, because its address may be that of other memory now.
BufferPlace GraphClient::device_place_of(const GraphPort& port, const void* buffer,
                                         std::uint64_t bytes, Flight& flight) const {
  const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(buffer));
  const auto& all = lent_devices_->all;
  const auto found = std::find_if(all.rbegin(), all.rend(), [&](const auto& one) {
    return !one->is_over && address >= one->address && address - one->address < one->bytes;
  });
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::invalid_argument,
                "graph: a buffer of the port \"" + port.name + "\", " + why);
  };
  if (found == all.rend()) {
    refuse("at device address " + std::to_string(address) +
           ", is in no device memory that is lent; call WorkerGraph::lend with its DeviceMemory, "
           "and keep the result");
  }
  const std::uint64_t offset = address - (*found)->address;
  if (bytes > (*found)->bytes - offset) {
    refuse("which has " + std::to_string(bytes) + " bytes, begins at byte " +
           std::to_string(offset) + " of lent device memory that has " +
           std::to_string((*found)->bytes) + "; lend more, or begin earlier");
  }
  flight.devices.push_back(*found);
  return {(*found)->handle, offset, bytes, 1};
}

}  // namespace detail

WorkerDeviceBuffer& WorkerDeviceBuffer::operator=(WorkerDeviceBuffer&& other) noexcept {
  WorkerDeviceBuffer taken(std::move(other));
  std::swap(memory_, taken.memory_);
  return *this;
}
WorkerDeviceBuffer::~WorkerDeviceBuffer() {
  if (!memory_ || !memory_->maker.is_this_process()) return;
  memory_->is_over = true;
  if (memory_->jobs != 0) return;
  if (const auto owner = memory_->owner.lock()) owner->client.take_back(*memory_);
}
std::uint64_t WorkerDeviceBuffer::address() const& noexcept {
  return memory_ ? memory_->address : 0;
}
std::uint64_t WorkerDeviceBuffer::bytes() const noexcept {
  return memory_ ? memory_->bytes : 0;
}

}  // namespace ctxbroker
