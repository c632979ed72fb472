// SPDX-License-Identifier: Apache-2.0
#include "fake_host.hpp"

namespace ctxbroker::test {
namespace {

// A kernel handle is the name's text.
const ctxb_kernel* handle_of(const char* name) {
  return reinterpret_cast<const ctxb_kernel*>(name);
}

RecordedLaunch recorded(const ctxb_launch& launch) {
  RecordedLaunch record;
  record.kernel = reinterpret_cast<const char*>(launch.kernel);
  record.grid.assign(launch.grid, launch.grid + 3);
  record.block.assign(launch.block, launch.block + 3);
  record.shared_bytes = launch.shared_bytes;
  record.stream = launch.stream;
  record.sizes.assign(launch.argument_sizes, launch.argument_sizes + launch.argument_count);
  for (std::uint32_t i = 0; launch.arguments != nullptr && i < launch.argument_count; ++i) {
    const auto* bytes = static_cast<const unsigned char*>(launch.arguments[i]);
    record.arguments.emplace_back(bytes, bytes + launch.argument_sizes[i]);
  }
  return record;
}

}  // namespace

FakeHost::FakeHost() : box_{}, gpu_{} {
  ctxb_host& host = box_.host;
  box_.owner = this;
  host.size = sizeof(ctxb_host);
  host.abi_major = CTXB_ABI_MAJOR;
  host.abi_minor = CTXB_ABI_MINOR;
  host.name = "fake";
  host.version = "1";
  host.get_extension = [](const ctxb_host* self, const char* id) -> const void* {
    FakeHost& me = owner(self);
    if (me.offers_gpu && std::strcmp(id, CTXB_EXT_GPU) == 0) return &me.gpu_;
    if (me.offers_launch && std::strcmp(id, CTXB_EXT_LAUNCH) == 0) return &me.launch_;
    return nullptr;
  };
  host.log = [](const ctxb_host* self, std::uint32_t, const char* text) {
    owner(self).logs.emplace_back(text);
  };
  host.fail = [](const ctxb_host* self, ctxb_status status, std::int32_t driver_status,
                 const char* text) {
    FakeHost& me = owner(self);
    me.failed_status = status;
    me.failed_driver_status = driver_status;
    me.failed_text = text;
    return status;
  };
  host.request_callback = [](const ctxb_host* self) { ++owner(self).callbacks_asked; };
  host.request_restart = [](const ctxb_host* self) { ++owner(self).restarts_asked; };

  gpu_.size = sizeof(gpu_);
  gpu_.get_kernel = [](const ctxb_host* self, const char*, const char* name,
                       const ctxb_kernel** kernel) {
    *kernel = handle_of(name);
    return owner(self).next_status;
  };
  gpu_.get_global = [](const ctxb_host* self, const char*, const char* name, std::uint64_t* address,
                       std::uint64_t* bytes) -> ctxb_status {
    const auto& known = owner(self).globals;
    const auto found = known.find(name);
    if (found == known.end()) return CTXB_ERROR_NOT_FOUND;
    *address = found->second.first;
    *bytes = found->second.second;
    return CTXB_OK;
  };
  gpu_.allocate = [](const ctxb_host* self, std::uint64_t bytes, std::uint64_t* address) {
    FakeHost& me = owner(self);
    if (me.next_status < 0) {
      return me.next_status;
    }
    *address = me.next_address_;
    me.next_address_ += (bytes + 0xFFF) & ~std::uint64_t{0xFFF};
    me.live[*address] = bytes;
    return me.next_status;
  };
  gpu_.release = [](const ctxb_host* self, std::uint64_t address) -> ctxb_status {
    FakeHost& me = owner(self);
    me.released.push_back(address);
    return me.live.erase(address) == 1 ? CTXB_OK : CTXB_ERROR_INVALID_ARGUMENT;
  };
  gpu_.launch = [](const ctxb_host* self, const ctxb_launch* launch) {
    owner(self).launches.push_back(recorded(*launch));
    return owner(self).next_status;
  };
  launch_.size = sizeof(launch_);
  launch_.launch = [](const ctxb_host* self, const ctxb_launch* launch,
                      const ctxb_launch_options* options) {
    RecordedLaunch record = recorded(*launch);
    record.options = *options;
    if (options->packed != nullptr) {
      const auto* bytes = static_cast<const unsigned char*>(options->packed);
      record.packed.assign(bytes, bytes + options->packed_bytes);
      record.offsets.assign(options->argument_offsets,
                            options->argument_offsets + launch->argument_count);
    }
    owner(self).launches.push_back(record);
    return owner(self).next_status;
  };
  gpu_.upload = [](const ctxb_host* self, void*, std::uint64_t destination, const void* source,
                   std::uint64_t bytes) {
    const auto* from = static_cast<const unsigned char*>(source);
    owner(self).uploads[destination].assign(from, from + bytes);
    return owner(self).next_status;
  };
  gpu_.clear = [](const ctxb_host* self, void*, std::uint64_t destination, std::uint64_t bytes) {
    owner(self).clears.emplace_back(destination, bytes);
    return owner(self).next_status;
  };
  gpu_.copy = [](const ctxb_host* self, void*, std::uint64_t, std::uint64_t, std::uint64_t) {
    return owner(self).next_status;
  };
}

}  // namespace ctxbroker::test
