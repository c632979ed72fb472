// SPDX-License-Identifier: Apache-2.0
// Device memory that two processes share: one makes it and sends its descriptor over a Unix socket.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "broker_fixture.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/stream.hpp"
#include "support/child_process.hpp"
#include "support/raw_driver.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker {

inline constexpr const char* shared_memory_socket = "CTXB_TEST_SOCKET";

// A file descriptor that is closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

// One end of a connection between two processes. A step that takes a minute fails.
class Connection {
 public:
  explicit Connection(int socket) : socket_(socket) {
    const timeval minute{60, 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
  }

  // A size, and a descriptor where there is one.
  void send(std::uint64_t size, int descriptor = -1) const {
    Message message(size);
    if (descriptor >= 0) {
      cmsghdr& header = *CMSG_FIRSTHDR(&message.header);
      header = {CMSG_LEN(sizeof descriptor), SOL_SOCKET, SCM_RIGHTS};
      std::memcpy(CMSG_DATA(&header), &descriptor, sizeof descriptor);
    } else {
      message.header.msg_control = nullptr;
      message.header.msg_controllen = 0;
    }
    ASSERT_EQ(sendmsg(socket_.get(), &message.header, MSG_NOSIGNAL), sizeof size)
        << std::strerror(errno);
  }
  std::pair<std::uint64_t, Descriptor> receive() const {
    Message message(0);
    const ssize_t got = recvmsg(socket_.get(), &message.header, MSG_CMSG_CLOEXEC);
    EXPECT_EQ(got, sizeof message.size) << "the other process has ended, or takes too long";
    int descriptor = -1;
    const cmsghdr* const header = CMSG_FIRSTHDR(&message.header);
    if (header != nullptr) std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return {message.size, Descriptor(descriptor)};
  }

 private:
  struct Message {
    explicit Message(std::uint64_t what) : size(what) {
      part = {&size, sizeof size};
      header.msg_iov = &part;
      header.msg_iovlen = 1;
      header.msg_control = control.data();
      header.msg_controllen = control.size();
    }
    Message(const Message&) = delete;
    Message& operator=(const Message&) = delete;

    std::uint64_t size;
    iovec part{};
    msghdr header{};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  };

  Descriptor socket_;
};

class SharedMemoryTest : public BrokerTest {
 protected:
  static constexpr std::uint32_t width = 64, height = 64;
  static constexpr std::size_t samples = std::size_t{width} * height * 4;
  static constexpr std::uint64_t bytes = samples * sizeof(float);

  // Waits until it is done, because no other stream does.
  void fill(Tenant& tenant, const DeviceMemory& memory, float value) {
    const Stream stream(tenant);
    tenant.run(0, [&] {
      ASSERT_EQ(driver.fill(memory.address(), value, samples, stream.get()), CUDA_SUCCESS);
    });
    EXPECT_THAT(fetch(tenant, memory, stream), ::testing::Each(value));
  }
  std::vector<float> fetch(Tenant& tenant, const DeviceMemory& memory, const Stream& stream) {
    std::vector<float> got(samples);
    tenant.run(0,
               [&] { EXPECT_EQ(driver.fetch(got, memory.address(), stream.get()), CUDA_SUCCESS); });
    return got;
  }
  std::vector<float> fetch(Tenant& tenant, const DeviceMemory& memory) {
    return fetch(tenant, memory, Stream(tenant));
  }
  static Descriptor exported(const DeviceMemory& memory) {
    return Descriptor(memory.export_descriptor());
  }

  // A sealed file in memory.
  static constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  static Descriptor file_of(const std::string& content, int with = seals) {
    Descriptor file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(write(file.get(), content.data(), content.size()),
              static_cast<ssize_t>(content.size()));
    EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, with), 0);
    return file;
  }
  // Lets each call fail in each work. After that, `check` gets the call, and a function that tells
  // how often a call has succeeded.
  template <typename Check>
  static void fail_halfway(const SoftwareControls& controls, const std::vector<const char*>& calls,
                           const std::vector<std::function<void()>>& works, const Check& check) {
    for (const char* const call : calls) {
      for (const auto& work : works) {
        controls.start_counting();
        controls.fail_call(call, 1, CUDA_ERROR_UNKNOWN);
        try {
          work();
          EXPECT_EQ(controls.call_count(call), 0U) << call;
        } catch (const Error& error) {
          EXPECT_EQ(error.origin().call, call);
        }
        check(call, [&](const std::string& name) {
          const char* const failed = controls.failed_call();
          const bool is_it = failed != nullptr && name == failed;
          return controls.call_count(name.c_str()) - (is_it ? 1 : 0);
        });
      }
    }
    controls.stop_counting();
  }

  RawDriver driver{broker.driver().path};
};

// It makes memory that is 3 everywhere, until it is told to give it back. Then it has to be 6.
class OtherProcess {
 public:
  OtherProcess() {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    connection_ = std::make_unique<Connection>(ends[0]);
    child_ = std::async(std::launch::async, [end = ends[1]] {
      const Descriptor own(end);
      return run_child("SharedMemoryTest.DISABLED_OtherProcessMakesAndSendsMemory",
                       {{shared_memory_socket, std::to_string(end)}});
    });
    auto [size, descriptor] = connection_->receive();
    bytes = size;
    file = std::make_unique<Descriptor>(std::move(descriptor));
  }
  ChildResult end() {
    connection_->send(0);
    return child_.get();
  }

  std::uint64_t bytes = 0;
  std::unique_ptr<Descriptor> file;

 private:
  std::unique_ptr<Connection> connection_;
  std::future<ChildResult> child_;
};

}  // namespace ctxbroker
