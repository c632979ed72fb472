// SPDX-License-Identifier: Apache-2.0
// A host that keeps what a plug-in says and does, with no GPU behind it.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ctxbroker/plugin.h"

namespace ctxbroker::test {

struct RecordedLaunch {
  std::string kernel;
  std::vector<std::uint32_t> grid, block, sizes;
  std::uint32_t shared_bytes = 0;
  std::vector<std::vector<unsigned char>> arguments;
  void* stream = nullptr;
  ctxb_launch_options options{};      // where there were some
  std::vector<unsigned char> packed;  // and what they point to
  std::vector<std::uint32_t> offsets;
};

// Not movable: the C structs point to it.
class FakeHost {
 public:
  FakeHost();
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;

  const ctxb_host* raw() const { return &box_.host; }

  bool offers_gpu = true;
  bool offers_launch = true;
  ctxb_status next_status = CTXB_OK;            // of every GPU call, while it is negative
  std::map<std::uint64_t, std::uint64_t> live;  // allocations: address to bytes
  std::vector<std::uint64_t> released;          // in order
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> globals;  // address, bytes
  std::vector<RecordedLaunch> launches;
  std::map<std::uint64_t, std::vector<unsigned char>> uploads;  // by destination
  std::vector<std::pair<std::uint64_t, std::uint64_t>> clears;  // destination, bytes
  std::vector<std::string> logs;
  ctxb_status failed_status = CTXB_OK;
  std::int32_t failed_driver_status = 0;
  std::string failed_text;
  int callbacks_asked = 0;
  int restarts_asked = 0;

 private:
  // The C struct and the way back from it.
  struct Box {
    ctxb_host host;
    FakeHost* owner;
  };
  static FakeHost& owner(const ctxb_host* host) {
    return *reinterpret_cast<const Box*>(host)->owner;
  }

  Box box_;
  ctxb_gpu_extension gpu_;
  ctxb_launch_extension launch_{};
  std::uint64_t next_address_ = 0x1000;
};

}  // namespace ctxbroker::test
