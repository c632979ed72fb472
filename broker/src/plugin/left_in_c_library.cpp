// SPDX-License-Identifier: Apache-2.0
#include "plugin/left_in_c_library.hpp"

#include <dlfcn.h>
#include <link.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include "gate/dynamic_tables.hpp"
#include "process/read_word.hpp"

namespace ctxbroker::detail {
namespace {

using Address = std::uintptr_t;

constexpr const char* timers_of_process = "/proc/self/timers";

// A timer of SIGEV_THREAD sends the C library's own signal to a thread of the C library, with the
// address of what the C library knows of the timer: the timer's number, and the function.
bool has_timer_in(const Extent& code) {
  constexpr int signal_of_timers = 32;
  std::ifstream timers(timers_of_process);
  for (std::string line; std::getline(timers, line);) {
    int number = 0;
    unsigned long timer = 0;
    if (std::sscanf(line.c_str(), "signal: %d/%lx", &number, &timer) != 2) continue;
    if (number == signal_of_timers && is_in(code, read_word(timer + sizeof(Address)))) return true;
  }
  return false;
}

// The kernel knows the list of each thread. Its lowest bit tells of what kind a mutex is.
bool holds_robust_mutex_in(const Extent& code, pid_t thread) noexcept {
  robust_list_head* head = nullptr;
  std::size_t bytes = 0;
  if (syscall(SYS_get_robust_list, thread, &head, &bytes) != 0) return false;
  const auto first = reinterpret_cast<Address>(head);
  Address at = first;
  for (int i = 0; i < ROBUST_LIST_LIMIT && at != 0; ++i) {
    if (is_in(code, at)) return true;
    at = read_word(at) & ~Address{1};
    if (at == first) break;
  }
  return is_in(code, read_word(first + offsetof(robust_list_head, list_op_pending)));
}
bool has_robust_mutex_in(const Extent& code) {
  std::error_code none;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", none)) {
    if (holds_robust_mutex_in(code, std::atoi(thread.path().filename().c_str()))) return true;
  }
  return false;
}

bool has_variable_in(const Extent& code) noexcept {
  constexpr int most_variables = 100000;
  auto at = reinterpret_cast<Address>(environ);
  if (is_in(code, at)) return true;
  for (int i = 0; i < most_variables && at != 0; ++i, at += sizeof(char*)) {
    const Address variable = read_word(at);
    if (variable == 0) return false;
    if (is_in(code, variable)) return true;
  }
  return false;
}

// A file begins with where its buffers are.
bool has_buffer_in(const Extent& code) noexcept {
  constexpr int most_files = 100000;
  constexpr Address words = sizeof(FILE) / sizeof(Address);
  const auto list = reinterpret_cast<Address>(dlsym(RTLD_DEFAULT, "_IO_list_all"));
  Address file = list != 0 ? read_word(list) : 0;
  for (int i = 0; i < most_files && file != 0; ++i) {
    for (Address word = 0; word < words; ++word) {
      if (is_in(code, read_word(file + word * sizeof(Address)))) return true;
    }
    file = read_word(file + offsetof(FILE, _chain));
  }
  return false;
}

// Functions that keep what they are given where nobody can look: the last one only where the kernel
// does not show a process its timers.
constexpr std::string_view keepers[] = {"on_exit",   "fopencookie", "mq_notify",   "getaddrinfo_a",
                                        "aio_read",  "aio_read64",  "aio_write",   "aio_write64",
                                        "aio_fsync", "aio_fsync64", "lio_listio",  "lio_listio64",
                                        "initstate", "setstate",    "timer_create"};

struct Imported {
  const Extent& code;
  bool has[std::size(keepers)] = {};
};

int look_for_keepers(dl_phdr_info* object, std::size_t, void* given) noexcept {
  Imported& imported = *static_cast<Imported*>(given);
  if (extent_of(*object) != imported.code) return 0;
  const DynamicTables tables = dynamic_tables_of(*object);
  for (const auto relocations : tables.relocations) {
    for (const ElfW(Rela) & relocation : relocations) {
      if (!fills_with_symbol(relocation)) continue;
      const ElfW(Sym)& symbol = symbol_of(tables, relocation);
      if (symbol.st_shndx != SHN_UNDEF) continue;
      const auto* const keeper =
          std::find(std::begin(keepers), std::end(keepers), tables.names + symbol.st_name);
      if (keeper != std::end(keepers)) imported.has[keeper - keepers] = true;
    }
  }
  return 1;
}

}  // namespace

std::string left_in_c_library(const Extent& code) {
  if (has_timer_in(code)) return "the function of a timer is in it";
  if (has_robust_mutex_in(code)) return "a thread holds a robust mutex that is in it";
  if (has_variable_in(code)) return "a string of the environment (putenv) is in it";
  if (has_buffer_in(code)) return "an open file has its buffer in it";
  return {};
}

std::string hidden_keepers_of(const Extent& code) {
  Imported imported{code};
  dl_iterate_phdr(look_for_keepers, &imported);
  if (access(timers_of_process, R_OK) == 0) imported.has[std::size(keepers) - 1] = false;
  std::string names;
  for (std::size_t i = 0; i < std::size(keepers); ++i) {
    if (imported.has[i]) names.append(names.empty() ? "" : ", ").append(keepers[i]);
  }
  return names;
}

}  // namespace ctxbroker::detail
