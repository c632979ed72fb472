// SPDX-License-Identifier: Apache-2.0
// The worker process: it maps what the host shares, loads the host's module, and serves messages.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "ctxbroker/worker_module.h"
#include "gate/loader_exception.hpp"
#include "process/foreign_descriptor.hpp"
#include "process/own_thread.hpp"
#include "process/restrictions.hpp"
#include "worker/graph_module.hpp"
#include "worker/packet.hpp"
#include "worker/worker_channel.hpp"

namespace ctxbroker::detail {
namespace {

constexpr int not_started_by_a_host = 2;
constexpr int cannot_serve = 3;
constexpr int lost_its_host = 4;
constexpr std::chrono::milliseconds beat{100};
constexpr std::chrono::seconds descriptor_patience{1};

// What the module said with `fail`, for the request that the thread handles. A pointer, because a
// library that is loaded late has little room for variables of threads.
constinit thread_local std::string* failure = nullptr;

// One in a process: the module's calls come without an object.
struct Serving {
  const pid_t process = ::getpid();
  Hello hello;
  std::string module_path;
  Mapping memory;
  std::unique_ptr<WorkerChannel> channel;
  const ctxb_worker_module* module = nullptr;

  std::mutex mutex;
  std::condition_variable arrived;
  std::map<std::uint64_t, Descriptor> descriptors;
  std::map<std::uint64_t, Mapping> blocks;
};
Serving* serving = nullptr;

// The host shares the memory with this process alone, and not with those that it forks.
bool is_forked() noexcept {
  return ::getpid() != serving->process;
}

// Ends a process that the module's code has forked, and in which that code has returned: two
// processes cannot serve one channel. Nobody hears of it.
void end_forked_process() noexcept {
  if (is_forked()) ::_exit(0);
}

// Gives a forked process memory of its own in place of the channel. Otherwise the end of a
// plug-in's function there would show the host that it has ended in the worker. Now it ends the
// process: see copy_running_calls.
void leave_channel() noexcept {
  static_cast<void>(::mmap(serving->memory.get(), serving->memory.bytes(), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
}

Descriptor take(std::uint64_t number) {
  std::unique_lock lock(serving->mutex);
  const auto here = [&] { return serving->descriptors.count(number) != 0; };
  if (!serving->arrived.wait_for(lock, descriptor_patience, here)) return Descriptor();
  Descriptor descriptor = std::move(serving->descriptors[number]);
  serving->descriptors.erase(number);
  return descriptor;
}

ctxb_status send(PacketKind kind, std::uint64_t number, const void* data, std::uint64_t bytes,
                 int descriptor) {
  if (bytes > serving->hello.shape.message_bytes || (data == nullptr && bytes != 0)) {
    return CTXB_ERROR_INVALID_ARGUMENT;
  }
  if (is_forked()) return CTXB_ERROR_UNAVAILABLE;
  PacketHead head;
  head.kind = kind;
  head.number = number;
  head.bytes = static_cast<std::uint32_t>(bytes);
  if (send_packet(worker_socket, head, data, descriptor)) return CTXB_OK;
  return errno == EBADF ? CTXB_ERROR_INVALID_ARGUMENT : CTXB_ERROR_UNAVAILABLE;
}

const ctxb_worker_host host_functions{
    sizeof(ctxb_worker_host),
    0,
    [](std::uint64_t handle, void** memory, std::uint64_t* bytes) -> ctxb_status {
      const std::lock_guard lock(serving->mutex);
      const auto found = serving->blocks.find(handle);
      if (found == serving->blocks.end()) return CTXB_ERROR_NOT_FOUND;
      if (memory != nullptr) *memory = found->second.get();
      if (bytes != nullptr) *bytes = found->second.bytes();
      return CTXB_OK;
    },
    [](std::uint32_t type, const void* data, std::uint64_t bytes) -> ctxb_status {
      return send(PacketKind::notification, type, data, bytes, -1);
    },
    [](const char* text) {
      if (failure != nullptr) *failure = text != nullptr ? text : "";
    },
    [](std::uint64_t number) -> int { return take(number).release(); },
    [](std::uint64_t number, int descriptor) -> ctxb_status {
      if (!is_memory(descriptor)) return CTXB_ERROR_INVALID_ARGUMENT;
      return send(PacketKind::descriptor, number, nullptr, 0, descriptor);
    }};

ctxb_status failed(ctxb_status status, const std::string& text) {
  *failure = text;
  return status;
}

ctxb_status start_module() {
  if (serving->module == nullptr && serving->module_path.empty()) {
    serving->module = &graph_module;
  }
  if (serving->module == nullptr) {
    const std::string& path = serving->module_path;
    void* const library = open_or_end(path.c_str(), RTLD_NOW | RTLD_LOCAL, nullptr);
    if (library == nullptr) {
      return failed(CTXB_ERROR, ::dlerror());  // NOLINT(concurrency-mt-unsafe): of this thread
    }
    serving->module = static_cast<const ctxb_worker_module*>(::dlsym(library, "ctxb_worker_entry"));
    if (serving->module == nullptr) {
      return failed(CTXB_ERROR, "\"" + path + "\" does not export ctxb_worker_entry");
    }
  }
  const ctxb_worker_module& module = *serving->module;
  if (module.abi != CTXB_WORKER_ABI || module.size < sizeof(ctxb_worker_module) ||
      module.handle == nullptr) {
    return failed(CTXB_ERROR_VERSION,
                  "the module's ctxb_worker_entry has another version, is too short, or has no "
                  "function handle");
  }
  return module.start != nullptr ? module.start(&host_functions) : CTXB_OK;
}

// A message of the library's own that names a block.
ctxb_status change_block(const Request& request) {
  BlockName name;
  if (request.bytes != sizeof name) return failed(CTXB_ERROR_INVALID_ARGUMENT, "no block is named");
  std::memcpy(&name, request.data, sizeof name);
  const ctxb_worker_module& module = *serving->module;
  void* memory = nullptr;
  if (request.type == lend_type) {
    const Descriptor file = take(name.handle);
    struct stat about {};
    if (file.get() < 0 || ::fstat(file.get(), &about) != 0 || name.bytes == 0 ||
        static_cast<std::uint64_t>(about.st_size) != name.bytes) {
      return failed(CTXB_ERROR_INVALID_ARGUMENT, "the block has not come, or has another size");
    }
    Mapping block(file.get(), name.bytes);
    memory = block.get();
    {
      const std::lock_guard lock(serving->mutex);
      serving->blocks[name.handle] = std::move(block);
    }
    const ctxb_status status = module.buffer_lent == nullptr
                                   ? CTXB_OK
                                   : module.buffer_lent(name.handle, memory, name.bytes);
    if (status >= 0) return status;
  } else {
    if (host_functions.buffer(name.handle, &memory, nullptr) != CTXB_OK) {
      return failed(CTXB_ERROR_NOT_FOUND, "the block is not lent");
    }
    if (module.buffer_taken_back != nullptr) module.buffer_taken_back(name.handle, memory);
  }
  const std::lock_guard lock(serving->mutex);
  serving->blocks.erase(name.handle);
  return request.type == lend_type ? CTXB_ERROR : CTXB_OK;
}

ctxb_status handle(const Request& request, void* answer, std::uint64_t& bytes) {
  if (request.type == stop_type) {
    if (serving->module->stop != nullptr) serving->module->stop();
    return CTXB_OK;
  }
  if (request.type >= first_own_type && request.type < first_graph_type) {
    return change_block(request);
  }
  const ctxb_worker_message message{sizeof message, request.type, request.subject, request.data,
                                    request.bytes};
  ctxb_worker_reply reply{sizeof reply, 0, answer, request.capacity, 0};
  const ctxb_status status = serving->module->handle(&message, &reply);
  if (status >= 0 && reply.bytes > reply.capacity) {
    return failed(CTXB_ERROR_INVALID_ARGUMENT, "the answer is longer than the room for it");
  }
  bytes = reply.bytes;
  return status;
}

// One thread's work until the host closes the worker.
void serve_requests() {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> answer(serving->hello.shape.message_bytes / sizeof(Line));
  std::string said;
  failure = &said;
  for (Request request; serving->channel->take(request);) {
    std::uint64_t bytes = 0;
    ctxb_status status = CTXB_ERROR;
    said.clear();
    try {
      status = handle(request, answer.data(), bytes);
    } catch (const std::exception& error) {
      status = failed(CTXB_ERROR, error.what());
    } catch (...) {
      status = failed(CTXB_ERROR, "an exception left the module");
    }
    end_forked_process();
    if (status < 0) {
      serving->channel->reply(request, status, said.data(), said.size());
    } else {
      serving->channel->reply(request, status, answer.data(), bytes);
    }
    if (request.type == stop_type) serving->channel->stop();
  }
}

// Beats, takes descriptors, and ends the process when the host is gone.
[[noreturn]] void look_after_socket() {
  Packet packet;
  for (;;) {
    serving->channel->control().heartbeat.fetch_add(1, std::memory_order_relaxed);
    pollfd waiting{worker_socket, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(beat.count())) == 0) continue;
    const Received received = receive_packet(worker_socket, packet);
    if (received == Received::nothing) continue;
    if (received != Received::packet) {
      // A host that lives saw this too, and ends the process itself, with a reason.
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      ::_exit(lost_its_host);
    }
    if (packet.head.kind != PacketKind::descriptor || packet.descriptor.get() < 0) continue;
    const std::lock_guard lock(serving->mutex);
    serving->descriptors[packet.head.number] = std::move(packet.descriptor);
    serving->arrived.notify_all();
  }
}

bool receive_hello(Serving& target) {
  Packet packet;
  pollfd waiting{worker_socket, POLLIN, 0};
  if (::poll(&waiting, 1, 10'000) <= 0 ||
      receive_packet(worker_socket, packet) != Received::packet ||
      packet.head.kind != PacketKind::hello || packet.descriptor.get() < 0 ||
      !read_hello(packet.body(), packet.head.bytes, target.hello)) {
    return false;
  }
  struct stat about {};
  const std::size_t bytes = channel_bytes(target.hello.shape);
  if (::fstat(packet.descriptor.get(), &about) != 0 ||
      static_cast<std::size_t>(about.st_size) != bytes) {
    return false;
  }
  target.module_path.assign(reinterpret_cast<const char*>(packet.body()) + sizeof(Hello),
                            packet.head.bytes - sizeof(Hello));
  target.memory = Mapping(packet.descriptor.get(), bytes);
  target.channel = std::make_unique<WorkerChannel>(target.memory.get(), target.hello.shape,
                                                   std::chrono::microseconds(target.hello.spin_us));
  return true;
}

// Returns why the process cannot give up what the host wants it to; empty when it can.
std::string give_up(const Hello& hello) {
  try {
    if (hello.no_network != 0) give_up_network();
    if (hello.no_other_processes != 0) give_up_other_processes();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

void tell_memory_is_short() noexcept {
  if (!is_forked()) serving->channel->control().memory_short = 1;
}

void memory_is_short() {
  tell_memory_is_short();
  throw std::bad_alloc();
}

// Whether the process has nearly all the private memory that RLIMIT_DATA allows. For signal
// handlers.
bool is_at_memory_limit() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  char text[128] = {};
  const ssize_t length = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (length <= 0) return false;
  const char* at = text;
  for (int field = 0; field < 5 && at != nullptr; ++field) {  // the sixth number: data and stack
    at = std::strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  rlim_t bytes = 0;
  if (at != nullptr) std::from_chars(at, text + length, bytes);
  bytes *= static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  return bytes >= limit.rlim_cur / 10 * 9;
}

struct sigaction before_abort, before_segv;

// A plug-in may have an operator new of its own, or use malloc and not look at the result.
void at_crash(int signal, siginfo_t* info, void* /*context*/) {
  if (is_at_memory_limit()) tell_memory_is_short();
  ::sigaction(signal, signal == SIGABRT ? &before_abort : &before_segv, nullptr);
  if (info->si_code <= 0) std::raise(signal);  // a fault comes again by itself
}

void watch_memory() {
  std::set_new_handler(memory_is_short);
  struct sigaction action = {};
  action.sa_sigaction = at_crash;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGABRT, &action, &before_abort);
  ::sigaction(SIGSEGV, &action, &before_segv);
}

// Whether the process that made the socket has this process's user, or may do everything. Whoever
// makes the socket decides what is loaded here. A host makes a new one just before it starts a
// process, so it may change its user between two starts. A root host's program may give up its
// rights before it serves. A program that has got rights from its file serves nobody.
bool is_made_by_own_user(int socket) noexcept {
  if (::getauxval(AT_SECURE) != 0) return false;
  ucred maker{};
  socklen_t length = sizeof maker;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &maker, &length) == 0 &&
         (maker.uid == ::geteuid() || maker.uid == 0);
}

int serve(const ctxb_worker_module* module) {
  int kind = 0;
  socklen_t length = sizeof kind;
  if (::getsockopt(worker_socket, SOL_SOCKET, SO_TYPE, &kind, &length) != 0 ||
      kind != SOCK_SEQPACKET) {
    std::fprintf(stderr, "this program serves a host that starts it (ctxbroker/worker.hpp)\n");
    return not_started_by_a_host;
  }
  if (!is_made_by_own_user(worker_socket)) {
    std::fprintf(stderr,
                 "another user has made this program's socket, or its file gives it rights; a "
                 "worker serves a host of its own user, or root's\n");
    return not_started_by_a_host;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::fcntl(worker_socket, F_SETFD, FD_CLOEXEC);
  // Threads of the module and of the driver use it until the process ends.
  static Serving* const all = new Serving;
  serving = all;
  if (!receive_hello(*serving)) {
    std::fprintf(stderr, "the host's first packet is not what this library understands\n");
    return cannot_serve;
  }
  serving->module = module;
  const std::string not_given_up = give_up(serving->hello);  // before there are other threads
  RunningCopies& running = running_of(serving->memory.get());
  copy_running_calls(running.copies, std::size(running.copies));
  ::pthread_atfork(nullptr, nullptr, leave_channel);
  watch_memory();
  start_own_thread(look_after_socket).detach();
  std::vector<std::thread> others;
  Serving& here = *serving;
  // The module starts on this thread, before the others may take messages.
  Request first;
  if (!here.channel->take(first)) return cannot_serve;
  std::string said;
  failure = &said;
  ctxb_status status = CTXB_ERROR;
  if (first.type != start_type) {
    failed(CTXB_ERROR_WRONG_STATE, "the first message does not start the module");
  } else if (!not_given_up.empty()) {
    failed(CTXB_ERROR_UNAVAILABLE, not_given_up);
  } else {
    try {
      status = start_module();
    } catch (const std::exception& error) {
      failed(CTXB_ERROR, error.what());
    } catch (...) {
      failed(CTXB_ERROR, "an exception left the module's start");
    }
  }
  end_forked_process();
  here.channel->reply(first, status, said.data(), status < 0 ? said.size() : 0);
  if (status < 0) {
    static_cast<void>(here.channel->take(first));  // the host has the reason, and ends the process
    return cannot_serve;
  }
  for (std::uint32_t i = 1; i < here.hello.threads; ++i) {
    others.push_back(start_own_thread(serve_requests, Signals::inherited));
  }
  serve_requests();
  for (std::thread& thread : others) thread.join();
  return 0;
}

}  // namespace
}  // namespace ctxbroker::detail

extern "C" int ctxb_worker_serve(const ctxb_worker_module* module) {
  try {
    return ctxbroker::detail::serve(module);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the worker cannot serve: %s\n", error.what());
    return ctxbroker::detail::cannot_serve;
  }
}
