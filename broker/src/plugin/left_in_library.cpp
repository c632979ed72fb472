// SPDX-License-Identifier: Apache-2.0
#include "plugin/left_in_library.hpp"

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iostream>
#include <locale>
#include <memory_resource>
#include <new>

#include "plugin/left_in_c_library.hpp"
#include "plugin/left_in_threads.hpp"
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

Left what_is_left_in(const Extent& code) {
  if (std::string signal = signal_with_handler(code); !signal.empty()) return {signal, true};
  switch (find_lasting_thread(code)) {
    case LeftThread::started:
      return {"a thread that was started in it is still there", true};
    case LeftThread::calls:
      return {"a thread was started with a function of it and is still there", false};
    case LeftThread::none:
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
