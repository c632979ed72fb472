// SPDX-License-Identifier: Apache-2.0
#include "plugin/left_in_threads.hpp"

#include <dlfcn.h>
#include <limits.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>

#include "gate/code_map.hpp"
#include "gate/common_libraries.hpp"
#include "gate/thread_object.hpp"
#include "process/read_word.hpp"

namespace ctxbroker::detail {
namespace {

using Address = std::uintptr_t;

// The C library says where it keeps its threads and keys, as it tells debuggers.
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

// The keys. A key is in use when its sequence number is odd.
struct KeyTable {
  const Address first = find_variable("__pthread_keys");
  const Field* const all = find_field("_thread_db___pthread_keys");
  const Field* const sequence = find_field("_thread_db_pthread_key_struct_seq");
  const Field* const destructor = find_field("_thread_db_pthread_key_struct_destr");
  explicit operator bool() const noexcept {
    return first != 0 && all != nullptr && sequence != nullptr && destructor != nullptr;
  }
  Address of(pthread_key_t key) const noexcept {
    return first + std::size_t{key} * (all->bits / CHAR_BIT);
  }
  Address sequence_of(pthread_key_t key) const noexcept {
    return read_word(of(key) + sequence->offset);
  }
  Address* destructor_of(pthread_key_t key) const noexcept {
    return reinterpret_cast<Address*>(of(key) + destructor->offset);
  }
  // Calls `use` with each key whose destructor is in the code.
  template <typename Use>
  void visit(const Extent& code, Use&& use) const {
    for (pthread_key_t key = 0; *this && key < all->count; ++key) {
      const Address now = sequence_of(key), its = read_word(of(key) + destructor->offset);
      if ((now & 1) != 0 && is_in(code, its)) use(key, now, its);
    }
  }
};

// A thread's values: tables of a few keys each.
struct Values {
  const Field* const tables = find_field("_thread_db_pthread_specific");
  const Field* const in_table = find_field("_thread_db_pthread_key_data_level2_data");
  const Field* const sequence = find_field("_thread_db_pthread_key_data_seq");
  const Field* const value = find_field("_thread_db_pthread_key_data_data");
  explicit operator bool() const noexcept {
    return tables != nullptr && in_table != nullptr && sequence != nullptr && value != nullptr &&
           in_table->count != 0;
  }
  // The thread has had a value, and has none now. The C library takes it away before it calls the
  // destructor.
  bool is_taken(Address thread, pthread_key_t key, Address now) const noexcept {
    const std::size_t bytes = in_table->bits / CHAR_BIT;
    const Address table =
        read_word(thread + tables->offset + key / in_table->count * sizeof(Address));
    if (table == 0) return false;
    const Address at = table + in_table->offset + key % in_table->count * bytes;
    return read_word(at + sequence->offset) == now && read_word(at + value->offset) == 0;
  }
};

// Says what of a thread leads into the code. std::thread starts a function of the C++ library with
// an object. If the object's class is the code's, the code has started the thread. If the object's
// function is the code's, or it begins with one, somebody has.
LeftThread thread_in(const Extent& code, Address start, Address argument) noexcept {
  if (is_in(code, start)) return LeftThread::started;
  if (!owner_of_code(reinterpret_cast<const void*>(start)).starts_threads) return LeftThread::none;
  const ThreadObject object = read_thread_object(argument, is_code_that_calls_for_others);
  if (object.its_class == 0) return LeftThread::none;
  const bool is_its_class = is_in(code, object.its_class);
  if (object.function != 0 && !is_in(code, object.function)) {
    return is_its_class ? LeftThread::calls : LeftThread::none;
  }
  if (is_its_class) return LeftThread::started;
  return object.function != 0 || is_in(code, read_word(argument + sizeof(void*)))
             ? LeftThread::calls
             : LeftThread::none;
}

// The object of std::thread is gone before the C library calls destructors.
bool is_at_work(Address start, Address argument) noexcept {
  return owner_of_code(reinterpret_cast<const void*>(start)).starts_threads &&
         read_thread_object(argument, is_code_that_calls_for_others).its_class != 0;
}

// Calls `use` with each thread, the function that it was started with and its argument. A thread
// may begin or end meanwhile. Then the walk ends early, meets a word that is gone, or goes round in
// the list of ended threads. A thread that has ended has the id 0, and -1 once it is joined.
template <typename Use>
void visit_threads(Use&& use) noexcept {
  const ThreadList list;
  if (!list) return;
  constexpr int most_threads = 10000;
  const Address head = list.loader + list.used->offset;
  Address at = read_word(head);
  for (int i = 0; i < most_threads && at != 0 && at != head; ++i, at = read_word(at)) {
    const Address thread = at - list.link->offset;
    if (static_cast<pid_t>(read_word(thread + list.id->offset)) <= 0) continue;
    const Address start = thread + list.start->offset;
    use(thread, read_word(start), read_word(start + sizeof(void*)));
  }
}

LeftThread find_thread(const Extent& code) noexcept {
  LeftThread found = LeftThread::none;
  visit_threads([&](Address, Address start, Address argument) {
    found = std::max(found, thread_in(code, start, argument));
  });
  return found;
}

// Asks until the answer is none, or for a moment. Returns the last answer.
template <typename Ask>
auto ask_for_a_moment(Ask&& ask) noexcept {
  constexpr std::chrono::milliseconds patience{100}, nap{1};
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const auto answer = ask();
    if (answer == decltype(answer){} || std::chrono::steady_clock::now() - begin > patience) {
      return answer;
    }
    std::this_thread::sleep_for(nap);
  }
}

void set(Address* at, Address of, Address to) noexcept {
  __atomic_compare_exchange_n(at, &of, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

}  // namespace

LeftThread find_lasting_thread(const Extent& code) noexcept {
  return ask_for_a_moment([&] { return find_thread(code); });
}

LeavingKeys::LeavingKeys(const std::vector<Extent>& code) {
  const KeyTable keys;
  for (const Extent& one : code) {
    keys.visit(one, [&](pthread_key_t key, Address sequence, Address destructor) {
      keys_.push_back({key, sequence, destructor});
    });
  }
  are_in_use_ = ask_for_a_moment([&] { return is_any_running(); });
  if (are_in_use_) return;
  for (const Key& one : keys_) set(keys.destructor_of(one.key), one.destructor, 0);
  are_in_use_ = is_any_running();  // from now on no thread enters one
}

LeavingKeys::~LeavingKeys() {
  const KeyTable keys;
  for (const Key& one : keys_) {
    if (keys.sequence_of(one.key) != one.sequence) continue;
    set(keys.destructor_of(one.key), 0, one.destructor);
  }
}

bool LeavingKeys::is_any_running() const noexcept {
  const Values values;
  bool found = false;
  if (keys_.empty() || !values) return found;
  visit_threads([&](Address thread, Address start, Address argument) {
    if (is_at_work(start, argument)) return;
    for (const Key& one : keys_) found |= values.is_taken(thread, one.key, one.sequence);
  });
  return found;
}

int LeavingKeys::delete_left() noexcept {
  const KeyTable keys;
  int deleted = 0;
  std::erase_if(keys_, [&](const Key& one) {
    if (extent_at(reinterpret_cast<const void*>(one.destructor)).end != 0) return false;
    const bool is_left = keys.sequence_of(one.key) == one.sequence;
    if (is_left && pthread_key_delete(one.key) == 0) ++deleted;
    return true;
  });
  return deleted;
}

}  // namespace ctxbroker::detail
