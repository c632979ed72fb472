// SPDX-License-Identifier: Apache-2.0
#include "plugin/left_in_library.hpp"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <new>
#include <thread>

#include "gate/code_map.hpp"

namespace ctxbroker::detail {
namespace {

using Address = std::uintptr_t;

bool is_in(const Extent& code, Address address) noexcept {
  return address >= code.begin && address < code.end;
}
template <typename Pointer>
bool is_in(const Extent& code, Pointer* pointer) noexcept {
  return is_in(code, reinterpret_cast<Address>(pointer));
}

// Reads a word that may be gone meanwhile. Zero: it is.
Address read_word(Address at) noexcept {
  Address word = 0;
  const iovec here{&word, sizeof word}, there{reinterpret_cast<void*>(at), sizeof word};
  const auto length = static_cast<ssize_t>(sizeof word);
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == length ? word : 0;
}

std::string signal_with_handler(const Extent& code) {
  for (int number = 1; number <= SIGRTMAX; ++number) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0) continue;
    const bool with_info = (action.sa_flags & SA_SIGINFO) != 0;
    if (with_info ? is_in(code, action.sa_sigaction) : is_in(code, action.sa_handler)) {
      return "a handler of signal " + std::to_string(number) + " is in it";
    }
  }
  return {};
}

// The C library says where it keeps its threads and keys, as it tells debuggers. Another one than
// glibc does not say.
struct Field {
  std::uint32_t bits, count, offset;
};
const Field* find_field(const char* name) noexcept {
  return static_cast<const Field*>(dlsym(RTLD_DEFAULT, name));
}
Address find_variable(const char* name) noexcept {
  return reinterpret_cast<Address>(dlsym(RTLD_DEFAULT, name));
}

// The threads, and what they were started with.
struct ThreadList {
  const Address loader = find_variable("_rtld_global");
  const Field* const used = find_field("_thread_db_rtld_global__dl_stack_used");
  const Field* const link = find_field("_thread_db_pthread_list");
  const Field* const start = find_field("_thread_db_pthread_start_routine");
  explicit operator bool() const noexcept {
    return loader != 0 && used != nullptr && link != nullptr && start != nullptr;
  }
};

// A thread may begin or end meanwhile: then the walk ends early, or meets a word that is gone.
bool has_thread(const Extent& code) noexcept {
  const ThreadList list;
  if (!list) return false;
  constexpr int most_threads = 100000;
  const Address head = list.loader + list.used->offset;
  Address at = read_word(head);
  for (int i = 0; i < most_threads && at != 0 && at != head; ++i, at = read_word(at)) {
    const Address place = at - list.link->offset + list.start->offset;
    const Address start = read_word(place);
    if (is_in(code, start)) return true;
    // std::thread starts a function of the C++ library with an object: its class is the code's, or
    // it begins with a function of the code.
    if (!owner_of_code(reinterpret_cast<const void*>(start)).starts_threads) continue;
    const Address object = read_word(place + sizeof(void*));
    if (object == 0) continue;
    if (is_in(code, read_word(object)) || is_in(code, read_word(object + sizeof(void*)))) {
      return true;
    }
  }
  return false;
}

// A thread that nobody joins may be at its very end.
bool keeps_thread(const Extent& code) noexcept {
  constexpr std::chrono::milliseconds patience{100}, nap{1};
  const auto begin = std::chrono::steady_clock::now();
  while (has_thread(code)) {
    if (std::chrono::steady_clock::now() - begin > patience) return true;
    std::this_thread::sleep_for(nap);
  }
  return false;
}

// The keys. A key is in use when its sequence number is odd.
struct KeyTable {
  const Address first = find_variable("__pthread_keys");
  const Field* const all = find_field("_thread_db___pthread_keys");
  const Field* const sequence = find_field("_thread_db_pthread_key_struct_seq");
  const Field* const destructor = find_field("_thread_db_pthread_key_struct_destr");
  explicit operator bool() const noexcept {
    return first != 0 && all != nullptr && sequence != nullptr && destructor != nullptr;
  }
};

}  // namespace

int delete_left_keys(const Extent& code) noexcept {
  const KeyTable keys;
  if (!keys) return 0;
  int deleted = 0;
  for (pthread_key_t key = 0; key < keys.all->count; ++key) {
    const Address at = keys.first + std::size_t{key} * (keys.all->bits / CHAR_BIT);
    const bool is_used = (read_word(at + keys.sequence->offset) & 1) != 0;
    if (!is_used || !is_in(code, read_word(at + keys.destructor->offset))) continue;
    if (pthread_key_delete(key) == 0) ++deleted;
  }
  return deleted;
}

std::string what_is_left_in(const Extent& code) {
  if (std::string signal = signal_with_handler(code); !signal.empty()) return signal;
  if (keeps_thread(code)) return "a thread that was started in it is still there";
  if (is_in(code, std::get_terminate())) return "the handler of std::terminate is in it";
  if (is_in(code, std::get_new_handler())) return "the handler of operator new is in it";
  return {};
}

}  // namespace ctxbroker::detail
