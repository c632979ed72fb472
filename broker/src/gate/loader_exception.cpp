// SPDX-License-Identifier: Apache-2.0
#include "gate/loader_exception.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "gate/loaded_objects.hpp"
#include "observe/lasting.hpp"
#include "observe/running.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::size_t longest_words = 300;  // of the exception's own

std::string cleaned(std::string text) {
  text.resize(std::min(text.size(), longest_words));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

// "the table cannot be read", or the exception's type.
std::string words_of_exception() {
  const std::type_info* const type = abi::__cxa_current_exception_type();
  // The end of a thread may not be caught a second time.
  if (type == nullptr) return "the end of its thread (pthread_exit), or one of another language";
  try {
    throw;
  } catch (const std::exception& error) {
    return cleaned(error.what());
  } catch (...) {
    int status = 0;
    char* const name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
    std::string text = std::string("an object of type ") + (name != nullptr ? name : type->name());
    std::free(name);  // NOLINT(cppcoreguidelines-no-malloc): as __cxa_demangle wants it
    return cleaned(text);
  }
}

// The libraries that dlopen brought with this one, whose constructors have run or were running. Not
// known for one that leaves.
std::string brought_with(std::string_view file) {
  const std::vector<LoadedObject> present = loaded_objects();
  const auto opened = std::find_if(present.begin(), present.end(),
                                   [&](const LoadedObject& one) { return one.path == file; });
  std::string names;
  for (auto one = opened; one != present.end(); ++one) {
    if (one == opened || one->name.empty()) continue;
    names += (names.empty() ? "" : ", ") + one->name;
  }
  return names;
}

std::string make_text(const char* file, bool is_opened, const std::string& words) {
  std::string text = "plug-in library " + std::string(file) + ": a static ";
  text += is_opened ? "constructor" : "destructor";
  const std::string others = is_opened ? brought_with(file) : "";
  if (!others.empty()) text += ", its own or that of a library that came with it (" + others + "),";
  text += " threw an exception";
  if (!words.empty()) text += ": " + words;
  return text +
         ". The system's loader cannot go on after that, so the process ends. Report this to the "
         "plug-in's author, or go on without the plug-in.";
}

[[noreturn]] void end(const TenantIdentity* tenant, const char* file, bool is_opened) noexcept {
  const std::string words = words_of_exception();
  const std::string text = make_text(file, is_opened, words);
  const std::string line = "ctxbroker: " + text + "\n";
  static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));  // one piece
  if (tenant != nullptr) tenant->log(Severity::error, "plugin", text);
  // For the line of a crash, and for the host of a worker.
  const std::string what = is_opened ? "a static constructor" : "a static destructor";
  const RunningNote note(nullptr, lasting(file), lasting(what + " (" + words + ")"));
  std::terminate();
}

// The C library declares dlopen and dlclose as functions that throw nothing, so that a compiler
// leaves out handlers around them. It must not know which functions these are.
void* (*volatile const opens)(const char*, int) = dlopen;
int (*volatile const closes)(void*) = dlclose;

// An exception of a C++ destructor does not leave dlclose: the C library's frames below it cannot
// be unwound, and so the process ends where it is thrown. The handler names the library then.
struct Closing {
  const TenantIdentity* tenant;
  const char* file;
};
constinit thread_local const Closing* closing = nullptr;
constinit std::atomic<std::terminate_handler> usual{nullptr};

[[noreturn]] void end_while_closing() noexcept {
  if (const Closing* const now = std::exchange(closing, nullptr))
    end(now->tenant, now->file, false);
  if (const std::terminate_handler handler = usual) handler();
  std::abort();
}

}  // namespace

void* open_or_end(const char* file, int mode, const TenantIdentity* tenant) noexcept {
  try {
    return opens(file, mode);
  } catch (...) {
    end(tenant, file, true);
  }
}

void close_or_end(void* library, const char* file, const TenantIdentity* tenant) noexcept {
  const Closing now{tenant, file};
  const Closing* const outer = std::exchange(closing, &now);
  const std::terminate_handler before = std::set_terminate(end_while_closing);
  if (before != end_while_closing) usual = before;
  try {
    closes(library);
  } catch (...) {
    closing = nullptr;
    end(tenant, file, false);
  }
  closing = outer;
  // The library, or another thread, may have set its own.
  if (outer == nullptr && std::get_terminate() == end_while_closing) std::set_terminate(usual);
}

void end_after_loader_exception(const TenantIdentity* tenant, const char* file) noexcept {
  end(tenant, file, true);
}

}  // namespace ctxbroker::detail
