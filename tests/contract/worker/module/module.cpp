// SPDX-License-Identifier: Apache-2.0
// A worker module that does what a message asks for, also the worst.
#include <cuda.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "acts.hpp"
#include "ctxbroker/broker.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/worker_module.h"
#include "passing.hpp"
#include "support/driver_by_name.hpp"
#include "support/kernels.hpp"
#include "worker/futex.hpp"
#include "worker/layout.hpp"

using namespace ctxbroker;
using namespace ctxbroker::test;

namespace {

const ctxb_worker_host* host = nullptr;
std::atomic<std::uint64_t> blocks{0};

// ---- The channel, found where a hostile module would find it ----------------------------------

struct Channel {
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
};

Channel channel() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:ctxbroker-worker") == std::string::npos) continue;
    unsigned long long begin = 0, end = 0;
    std::sscanf(line.c_str(), "%llx-%llx", &begin, &end);
    return {reinterpret_cast<std::byte*>(begin), static_cast<std::size_t>(end - begin)};
  }
  return {};
}

// The tests use the default message_bytes.
constexpr detail::Shape shape{8, 4096};

detail::CellHead& cell(std::uint32_t index) {
  return detail::cell_of(channel().memory, shape, index);
}

detail::CellHead& own_cell() {
  for (std::uint32_t i = 0; i < shape.cells; ++i) {
    if (cell(i).state == static_cast<std::uint32_t>(detail::CellState::taken)) return cell(i);
  }
  throw std::runtime_error("no cell is taken");
}

void answer(detail::CellHead& where) {
  where.state = static_cast<std::uint32_t>(detail::CellState::reply);
  detail::futex_wake(where.state);
}

void pause_here() {
  std::this_thread::sleep_for(std::chrono::seconds(1));
}

void send(detail::PacketHead head, std::size_t bytes, std::uint32_t said_bytes) {
  std::string packet(sizeof head + bytes, 'x');
  head.bytes = said_bytes;
  std::memcpy(packet.data(), &head, sizeof head);
  static_cast<void>(!::send(detail::worker_socket, packet.data(), packet.size(), MSG_NOSIGNAL));
}

void scribble() {
  const Channel all = channel();
  std::mt19937 random(7);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (std::chrono::steady_clock::now() < end) {
    auto* const word =
        reinterpret_cast<std::atomic<std::uint32_t>*>(all.memory + random() % (all.bytes / 4) * 4);
    *word = random() % 3 == 0 ? static_cast<std::uint32_t>(random() % 8) : random();
  }
}

// Returns whether the act was a lie.
bool lie(std::uint32_t act) {
  using detail::PacketKind;
  const auto packet = [](PacketKind kind, std::size_t bytes, std::uint32_t said) {
    detail::PacketHead head;
    head.kind = kind;
    send(head, bytes, said);
    pause_here();
  };
  switch (act) {
    case bad_state: {
      detail::CellHead& own = own_cell();
      own.state = 77;
      detail::futex_wake(own.state);
    }
      pause_here();
      return true;
    case bad_sequence: {
      detail::CellHead& own = own_cell();
      own.sequence = own.sequence + 1;
      own.bytes = 0;
      own.status = 0;
      answer(own);
      pause_here();
      return true;
    }
    case bad_length: {
      detail::CellHead& own = own_cell();
      own.status = 0;
      own.bytes = 0xFFFFFFF0;
      answer(own);
      pause_here();
      return true;
    }
    case long_error: {
      detail::CellHead& own = own_cell();
      own.status = static_cast<std::uint32_t>(-1);
      own.bytes = shape.message_bytes + 1;
      answer(own);
      pause_here();
      return true;
    }
    case answers_nobody:
      answer(cell(shape.cells - 1));
      pause_here();
      return true;
    case answers_twice: {
      detail::CellHead& own = own_cell();
      std::thread([&own] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        answer(own);
      }).detach();
      return true;
    }
    case all_ones: {
      const Channel all = channel();
      std::fill_n(all.memory, all.bytes, std::byte{0xFF});
      pause_here();
      return true;
    }
    case random_bytes:
      scribble();
      return true;
    case shuts_socket:
      shutdown(detail::worker_socket, SHUT_WR);
      pause_here();
      return true;
    case bad_packet:
      packet(PacketKind::notification, 10, 1000);
      return true;
    case unknown_packet:
      packet(static_cast<PacketKind>(99), 10, 10);
      return true;
    case long_notification:
      packet(PacketKind::notification, shape.message_bytes + 64, shape.message_bytes + 64);
      return true;
    case packet_without_descriptor:
      packet(PacketKind::descriptor, 0, 0);
      return true;
    case two_descriptors: {
      const std::array<int, 2> both{1, 2};
      send_descriptors(both.data(), both.size());
    }
      pause_here();
      return true;
    default:
      return false;
  }
}

// A process outside of the worker's group traces all of it, so nobody else can wait for it.
void be_traced(std::uint64_t milliseconds) {
  std::array<int, 2> go{}, ready{};
  if (pipe2(go.data(), O_CLOEXEC) != 0 || pipe2(ready.data(), O_CLOEXEC) != 0) std::abort();
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  const pid_t worker = getpid();
  const pid_t child = fork();
  char traced = 'n';
  if (child == 0) {
    if (fork() != 0) _exit(0);
    setsid();
    close(detail::worker_socket);
    static_cast<void>(!read(go[0], &traced, 1));
    const bool traces = ptrace(PTRACE_SEIZE, worker, nullptr, nullptr) == 0;
    static_cast<void>(!write(ready[1], traces ? "y" : "n", 1));
    usleep(static_cast<useconds_t>(milliseconds * 1000));
    _exit(0);
  }
  waitpid(child, nullptr, 0);  // its signal would stop a process that is traced
  static_cast<void>(!write(go[1], "g", 1));
  static_cast<void>(!read(ready[0], &traced, 1));
  if (traced != 'y') throw std::runtime_error("this system lets no other process trace");
  kill(getpid(), SIGKILL);
}

// ---- The device, through a broker of the worker's own -----------------------------------------

ctxb_status on_device(const char* kernel) {
  BrokerOptions options;
  options.host_name = "worker";
  Broker broker = Broker::open(options);
  Tenant tenant = broker.open_tenant("hostile");
  const int status = tenant.run(0, [&] {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    const auto* const text = static_cast<const void*>(kernels_ptx);
    CUresult result = driver_call("cuModuleLoadData", &module, text);
    if (result == CUDA_SUCCESS) {
      result = driver_call("cuModuleGetFunction", &function, module, kernel);
    }
    if (result == CUDA_SUCCESS) {
      result = driver_call("cuLaunchKernel", function, 1U, 1U, 1U, 1U, 1U, 1U, 0U,
                           static_cast<CUstream>(nullptr), static_cast<void**>(nullptr),
                           static_cast<void**>(nullptr));
    }
    if (result != CUDA_SUCCESS) return -static_cast<int>(result);
    return static_cast<int>(driver_call("cuCtxSynchronize"));
  });
  host->fail(("the driver answers " + std::to_string(status)).c_str());
  const LeaseState state = tenant.report_status(0, status);
  return state == LeaseState::ended ? CTXB_ERROR_CONTEXT_LOST : CTXB_ERROR_DRIVER;
}

// ---- The module -------------------------------------------------------------------------------

template <typename Value>
Value read(const ctxb_worker_message* message) {
  Value value{};
  std::memcpy(&value, message->data, std::min<std::size_t>(sizeof value, message->bytes));
  return value;
}

ctxb_status give(ctxb_worker_reply* reply, const void* data, std::size_t bytes) {
  if (bytes > reply->capacity) return CTXB_ERROR_INVALID_ARGUMENT;
  if (bytes != 0) std::memcpy(reply->data, data, bytes);
  reply->bytes = bytes;
  return CTXB_OK;
}

ctxb_status scale_block(const ctxb_worker_message* message, ctxb_worker_reply* reply) {
  struct Job {
    std::uint64_t handle;
    std::uint64_t factor;
  };
  const Job job = read<Job>(message);
  void* memory = nullptr;
  std::uint64_t bytes = 0;
  const ctxb_status status = host->buffer(job.handle, &memory, &bytes);
  if (status < 0) {
    host->fail("there is no such block");
    return status;
  }
  auto* const values = static_cast<float*>(memory);
  const std::uint64_t count = bytes / sizeof(float);
  for (std::uint64_t i = 0; i < count; ++i) values[i] *= static_cast<float>(job.factor);
  return give(reply, &count, sizeof count);
}

ctxb_status scale_device_memory(const ctxb_worker_message* message, ctxb_worker_reply* reply) {
  struct Job {
    std::uint64_t number;
    std::uint64_t bytes;
    std::uint64_t factor;
  };
  const Job job = read<Job>(message);
  Broker broker = Broker::open();
  Tenant tenant = broker.open_tenant("format");
  const int descriptor = host->take_descriptor(job.number);
  const DeviceMemory memory = DeviceMemory::imported(tenant, descriptor, job.bytes);
  close(descriptor);
  std::vector<float> values(job.bytes / sizeof(float));
  const int status = tenant.run(0, [&] {
    const CUdeviceptr address = memory.address();
    CUresult result =
        driver_call("cuMemcpyDtoH_v2", static_cast<void*>(values.data()), address, job.bytes);
    for (float& value : values) value *= static_cast<float>(job.factor);
    if (result == CUDA_SUCCESS) {
      result = driver_call("cuMemcpyHtoD_v2", address, static_cast<const void*>(values.data()),
                           job.bytes);
    }
    if (result == CUDA_SUCCESS) result = driver_call("cuCtxSynchronize");
    return -static_cast<int>(result);
  });
  const std::uint64_t count = values.size();
  return status < 0 ? CTXB_ERROR_DRIVER : give(reply, &count, sizeof count);
}

std::uint64_t open_descriptors() {
  std::uint64_t mask = 0;
  DIR* const folder = opendir("/proc/self/fd");
  for (const dirent* entry = readdir(folder); entry != nullptr; entry = readdir(folder)) {
    const int number = std::atoi(entry->d_name);
    if (number != dirfd(folder) && entry->d_name[0] != '.') mask |= std::uint64_t{1} << number % 64;
  }
  closedir(folder);
  return mask;
}

ctxb_status handle(const ctxb_worker_message* message, ctxb_worker_reply* reply) {
  switch (message->type) {
    case echo:
      return give(reply, message->data, message->bytes);
    case scale:
      return scale_block(message, reply);
    case scale_frame:
      return scale_device_memory(message, reply);
    case lent_blocks: {
      const std::uint64_t count = blocks;
      return give(reply, &count, sizeof count);
    }
    case fails:
      host->fail("the paint has\ndried");
      return CTXB_ERROR_UNAVAILABLE;
    case throws:
      throw std::runtime_error("thrown in the module");
    case notifies:
      return host->notify(7, message->data, message->bytes);
    case passes_back: {
      const auto number = read<std::uint64_t>(message);
      const int descriptor = host->take_descriptor(number);
      const ctxb_status status = host->pass_descriptor(number + 1, descriptor);
      close(descriptor);
      return status;
    }
    case gives: {
      const int memory = made_memory();
      const ctxb_status status = host->pass_descriptor(5, memory);
      close(memory);
      return status;
    }
    case environment: {
      const std::string name(static_cast<const char*>(message->data), message->bytes);
      const char* const value = std::getenv(name.c_str());
      return give(reply, value, value != nullptr ? std::strlen(value) : 0);
    }
    case descriptors: {
      const std::uint64_t mask = open_descriptors();
      return give(reply, &mask, sizeof mask);
    }
    case group: {
      const std::array<std::int32_t, 2> ids{getpid(), getpgrp()};
      return give(reply, ids.data(), sizeof ids);
    }
    case prints:
      for (int i = 0; i < 100'000; ++i) std::printf("line %d of far too much text\n", i);
      std::fflush(stdout);
      return CTXB_OK;
    case sleeps:
      static_cast<void>(host->notify(9, nullptr, 0));
      std::this_thread::sleep_for(std::chrono::milliseconds(read<std::uint64_t>(message)));
      return CTXB_OK;
    case reaches: {
      const std::int64_t error = reach(read<Attempt>(message));
      return give(reply, &error, sizeof error);
    }
    case sends: {
      const int descriptor = host->take_descriptor(read<std::uint64_t>(message));
      const bool written = write(descriptor, "hello", 5) == 5;
      close(descriptor);
      return written ? CTXB_OK : CTXB_ERROR;
    }
    case forks_and_returns: {
      const std::uint64_t child = static_cast<std::uint64_t>(fork());
      if (child == 0) static_cast<void>(host->notify(7, "child", 5));
      return give(reply, &child, sizeof child);
    }
    case floods: {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
      while (std::chrono::steady_clock::now() < end) host->notify(8, "x", 1);
      return CTXB_OK;
    }
    case device_trap:
      return on_device("trap");
    case device_fault:
      return on_device("crash");
    default:
      if (lie(message->type) || pass(*host, *message)) return CTXB_OK;
      if (message->type == is_traced) be_traced(read<std::uint64_t>(message));
      perform(static_cast<Act>(message->type));
      return CTXB_OK;
  }
}

ctxb_status start(const ctxb_worker_host* functions) {
  host = functions;
  if (std::getenv("TEST_WORKER_AT_EXIT") != nullptr) {
    std::atexit([] { perform(static_cast<Act>(std::atoi(std::getenv("TEST_WORKER_AT_EXIT")))); });
  }
  const char* const way = std::getenv("TEST_WORKER_START");
  if (way == nullptr) return CTXB_OK;
  if (std::strcmp(way, "refuse") == 0) {
    host->fail("the module has no licence");
    return CTXB_ERROR;
  }
  perform(static_cast<Act>(std::atoi(way)));
  return CTXB_OK;
}

ctxb_status buffer_lent(std::uint64_t, void* memory, std::uint64_t bytes) {
  if (bytes == 4097) {
    host->fail("that is an odd size");
    return CTXB_ERROR;
  }
  if (static_cast<const char*>(memory)[bytes - 1] == 'p') std::puts("a block with a p");
  ++blocks;
  return CTXB_OK;
}

void buffer_taken_back(std::uint64_t, void*) {
  --blocks;
}

void stop() {
  const char* const way = std::getenv("TEST_WORKER_STOP");
  if (way != nullptr && std::strcmp(way, "throw") == 0) throw std::runtime_error("thrown in stop");
  if (way != nullptr && !lie(static_cast<std::uint32_t>(std::atoi(way)))) {
    perform(static_cast<Act>(std::atoi(way)));
  }
  const char* const file = std::getenv("TEST_WORKER_STOP_FILE");
  if (file != nullptr) std::ofstream(file) << "stopped";
}

}  // namespace

extern "C" const ctxb_worker_module ctxb_worker_entry = {sizeof(ctxb_worker_module),
                                                         CTXB_WORKER_ABI,
                                                         start,
                                                         handle,
                                                         buffer_lent,
                                                         buffer_taken_back,
                                                         stop};
