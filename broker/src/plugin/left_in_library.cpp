// SPDX-License-Identifier: Apache-2.0
#include "plugin/left_in_library.hpp"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <locale>
#include <memory_resource>
#include <new>
#include <thread>

#include "gate/code_map.hpp"
#include "plugin/left_in_c_library.hpp"
#include "process/read_word.hpp"

namespace ctxbroker::detail {
namespace {

using Address = std::uintptr_t;

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
  const Field* const id = find_field("_thread_db_pthread_tid");
  const Field* const start = find_field("_thread_db_pthread_start_routine");
  explicit operator bool() const noexcept {
    return loader != 0 && used != nullptr && link != nullptr && id != nullptr && start != nullptr;
  }
};

enum class Thread : std::uint8_t { none, calls, started };

// Says what of a thread leads into the code. std::thread starts a function of the C++ library with
// an object. If the object's class is the code's, the code has started the thread. If the object
// begins with a function of the code, somebody has.
Thread thread_in(const Extent& code, Address start, Address argument) noexcept {
  if (is_in(code, start)) return Thread::started;
  if (!owner_of_code(reinterpret_cast<const void*>(start)).starts_threads) return Thread::none;
  const Address its_class = class_of_object(argument);
  if (its_class == 0) return Thread::none;
  if (is_in(code, its_class)) return Thread::started;
  return is_in(code, read_word(argument + sizeof(void*))) ? Thread::calls : Thread::none;
}

// A thread may begin or end meanwhile. Then the walk ends early, meets a word that is gone, or goes
// round in the list of ended threads. A thread that has ended has the id 0, and -1 once it is
// joined.
Thread find_thread(const Extent& code) noexcept {
  const ThreadList list;
  if (!list) return Thread::none;
  constexpr int most_threads = 10000;
  const Address head = list.loader + list.used->offset;
  Address at = read_word(head);
  Thread found = Thread::none;
  for (int i = 0; i < most_threads && at != 0 && at != head; ++i, at = read_word(at)) {
    const Address thread = at - list.link->offset;
    if (static_cast<pid_t>(read_word(thread + list.id->offset)) <= 0) continue;
    const Address start = thread + list.start->offset;
    found = std::max(found, thread_in(code, read_word(start), read_word(start + sizeof(void*))));
  }
  return found;
}

// A thread that nobody joins may be at its very end.
Thread find_lasting_thread(const Extent& code) noexcept {
  constexpr std::chrono::milliseconds patience{100}, nap{1};
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const Thread found = find_thread(code);
    if (found == Thread::none || std::chrono::steady_clock::now() - begin > patience) return found;
    std::this_thread::sleep_for(nap);
  }
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

// An object that the C++ library uses for the whole process.
bool is_object_of(const Extent& code, const void* object) noexcept {
  return is_in(code, object) || is_in(code, class_of_object(reinterpret_cast<Address>(object)));
}

bool has_stream_in(const Extent& code) noexcept {
  const auto is_of = [&](const auto&... streams) {
    return (is_object_of(code, streams.rdbuf()) || ...);
  };
  return is_of(std::cin, std::cout, std::cerr, std::clog, std::wcin, std::wcout, std::wcerr,
               std::wclog);
}

// A locale leads to its table: how many have it, and where its facets are, and how many.
bool has_facet_in(const Extent& code) {
  constexpr Address most_facets = 1000;
  const std::locale current;
  const Address table = read_word(reinterpret_cast<Address>(&current));
  const Address facets = read_word(table + sizeof(Address));
  const Address count = std::min(read_word(table + 2 * sizeof(Address)), most_facets);
  for (Address i = 0; i < count; ++i) {
    const Address facet = read_word(facets + i * sizeof(Address));
    if (facet != 0 && is_object_of(code, reinterpret_cast<const void*>(facet))) return true;
  }
  return false;
}

std::string left_in_cxx_library(const Extent& code) {
  if (is_in(code, std::get_terminate())) return "the handler of std::terminate is in it";
  if (is_in(code, std::get_new_handler())) return "the handler of operator new is in it";
  if (is_object_of(code, std::pmr::get_default_resource())) {
    return "the default memory resource is of it";
  }
  if (has_stream_in(code)) return "a standard stream has a buffer of it";
  if (has_facet_in(code)) return "the global locale has a facet of it";
  return {};
}

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

Left what_is_left_in(const Extent& code) {
  if (std::string signal = signal_with_handler(code); !signal.empty()) return {signal, true};
  switch (find_lasting_thread(code)) {
    case Thread::started:
      return {"a thread that was started in it is still there", true};
    case Thread::calls:
      return {"a thread was started with a function of it and is still there", false};
    case Thread::none:
      break;
  }
  for (const auto look : {left_in_c_library, left_in_cxx_library}) {
    if (std::string text = look(code); !text.empty()) return {text, true};
  }
  if (const std::string keepers = hidden_keepers_of(code); !keepers.empty()) {
    return {"nobody can see what it has given to " + keepers, false};
  }
  return {};
}

}  // namespace ctxbroker::detail
