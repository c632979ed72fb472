// SPDX-License-Identifier: Apache-2.0
#include "observe/crash_report.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <string_view>
#include <utility>

#include "ctxbroker/crash_report.hpp"
#include "observe/running.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::size_t stack_bytes = std::size_t{64} << 10;
constexpr std::size_t most_libraries = 1024;
constexpr int most_callers = 64;

// --- what is known -----------------------------------------------------------------------------

struct LibraryCode {
  std::atomic<std::uintptr_t> begin{0}, end{0};  // begin is 0 while the rest is written
  std::atomic<const char*> file{nullptr};
};
// Global, as are handlers. Has no destructor, because a crash may come late.
constinit std::array<LibraryCode, most_libraries> libraries{};
constinit std::mutex changing;

struct Signal {
  int number;
  const char* name;
  struct sigaction found {};  // the handler before the broker's
  bool installed = false;
  bool told = false;  // that another one has replaced the broker's
};
std::array<Signal, 5> signals{Signal{SIGSEGV, "SIGSEGV"}, Signal{SIGBUS, "SIGBUS"},
                              Signal{SIGFPE, "SIGFPE"}, Signal{SIGILL, "SIGILL"},
                              Signal{SIGABRT, "SIGABRT"}};
constinit std::atomic<bool> naming{false};
// A process that a plug-in forks inherits the handlers. Its crash is not the end of this one.
constinit std::atomic<pid_t> named_process{0};

// What the thread's handler is at.
struct Handling {
  siginfo_t* info = nullptr;  // of the signal that it speaks of; null: of none
  void* context = nullptr;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Handling handling;

// When a thread ends that has a stack from the broker.
void take_signal_stack(void* memory) {
  stack_t current{};
  if (sigaltstack(nullptr, &current) == 0 && current.ss_sp == memory) {
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    if (sigaltstack(&none, nullptr) != 0) return;  // it stays in use
  }
  munmap(memory, stack_bytes);
}
// Made before the first thread gets one.
pthread_key_t stack_key{};

const char* library_at(std::uintptr_t address) noexcept {
  for (const LibraryCode& library : libraries) {
    const std::uintptr_t begin = library.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= library.end.load(std::memory_order_relaxed)) {
      continue;
    }
    return library.file.load(std::memory_order_relaxed);
  }
  return nullptr;
}

std::uintptr_t program_counter(const void* context) noexcept {
  const auto& machine = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return machine.pc;
#else
  static_cast<void>(machine);
  return 0;
#endif
}

// The innermost plug-in library whose code is among the callers.
const char* library_among_callers() noexcept {
  void* callers[most_callers];
  const int count = backtrace(callers, most_callers);
  for (int i = 0; i < count; ++i) {
    const char* const file = library_at(reinterpret_cast<std::uintptr_t>(callers[i]));
    if (file != nullptr) return file;
  }
  return nullptr;
}

// --- the line ----------------------------------------------------------------------------------

// Allocates nothing, and cuts what is too long.
class Line {
 public:
  Line& operator<<(std::string_view text) noexcept {
    const std::size_t room = sizeof text_ - 1 - length_;
    for (const char c : text.substr(0, room)) text_[length_++] = c == '\n' ? ' ' : c;
    return *this;
  }
  Line& number(std::uint64_t value, unsigned base) noexcept {
    char digits[20];
    std::size_t first = sizeof digits;
    do {
      digits[--first] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0);
    return *this << std::string_view(digits + first, sizeof digits - first);
  }
  void write() noexcept {
    text_[length_++] = '\n';
    static_cast<void>(!::write(STDERR_FILENO, text_, length_));  // one piece
  }

 private:
  char text_[2048];
  std::size_t length_ = 0;
};

void say(int number, const siginfo_t& info, const void* context) noexcept {
  const std::uintptr_t counter = program_counter(context);
  const char* const here = library_at(counter);
  Running running;
  if (running_thread != nullptr) running = running_thread->read_own();
  // The thread waits in the driver then, and no plug-in's code runs.
  if (running.function == work_on_device) running.function = nullptr;
  Line line;
  line << "ctxbroker: ";
  if (running.function != nullptr) {
    const char* const file = running.library == nullptr ? "?" : running.library;
    if (running.plugin != nullptr) {
      line << "plug-in " << running.plugin << " (" << file << ")";
    } else {
      line << "plug-in library " << file;
    }
    line << " crashed in " << running.function;
    if (here == nullptr) line << ", in code that it called,";
    if (here != nullptr && here != running.library) line << ", in code of " << here << ",";
  } else {
    const char* const file = here != nullptr ? here : library_among_callers();
    if (file == nullptr) return;
    line << "plug-in library " << file << " crashed outside of its functions";
  }
  line << " on thread ";
  line.number(static_cast<std::uint64_t>(gettid()), 10);
  const auto* known = std::find_if(signals.begin(), signals.end(),
                                   [&](const Signal& one) { return one.number == number; });
  line << " with " << (known != signals.end() ? known->name : "a signal");
  if (info.si_code > 0) {
    line << " at address 0x";
    line.number(reinterpret_cast<std::uintptr_t>(info.si_addr), 16);
  }
  line << ". The process ends. Report this to the plug-in's author, or go on without the plug-in.";
  line.write();
}

// --- the handler -------------------------------------------------------------------------------

// What would have happened without the broker.
void pass_on(const Signal& signal, siginfo_t* info, void* context) noexcept {
  const struct sigaction& found = signal.found;
  const bool is_fault = info->si_code > 0;  // else somebody has sent it
  const bool has_handler = (found.sa_flags & SA_SIGINFO) != 0 ||
                           (found.sa_handler != SIG_DFL && found.sa_handler != SIG_IGN);
  if (has_handler) {
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    if ((found.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) {
      sigaction(signal.number, &usual, nullptr);
    }
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &found.sa_mask, &before);
    if ((found.sa_flags & SA_SIGINFO) != 0) {
      found.sa_sigaction(signal.number, info, context);
    } else {
      found.sa_handler(signal.number);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return;
  }
  if (found.sa_handler == SIG_IGN && !is_fault) return;
  // The instruction faults again when this returns; what was sent has to be sent again.
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(signal.number, &usual, nullptr);
  if (!is_fault) raise(signal.number);
}

void on_signal(int number, siginfo_t* info, void* context) noexcept {
  const int error = errno;
  const auto* signal = std::find_if(signals.begin(), signals.end(),
                                    [&](const Signal& one) { return one.number == number; });
  if (signal == signals.end()) return;
  Handling& now = handling;
  if (now.info != nullptr) {
    // The unwinder has met a broken stack. Whoever comes next hears of the first signal.
    siginfo_t* const first = std::exchange(now.info, nullptr);
    pass_on(*signal, first, now.context);
    return;
  }
  if (naming.load(std::memory_order_acquire) && named_process.load() == ::getpid()) {
    now.info = info;
    now.context = context;
    say(number, *info, context);
    now.info = nullptr;
  }
  pass_on(*signal, info, context);
  errno = error;
}

bool is_ours(const Signal& signal, struct sigaction& current) noexcept {
  return sigaction(signal.number, nullptr, &current) == 0 && (current.sa_flags & SA_SIGINFO) != 0 &&
         current.sa_sigaction == on_signal;
}

void install(Signal& signal) noexcept {
  struct sigaction current {};
  if (is_ours(signal, current)) return;
  // Where another one has replaced the broker's, it calls the broker's or wants to have the signal
  // alone. To come before it would be a circle.
  if (signal.installed) return;
  signal.found = current;
  struct sigaction ours {};
  ours.sa_sigaction = on_signal;
  // On the signal's own stack, and again when the unwinder faults.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  signal.installed = sigaction(signal.number, &ours, nullptr) == 0;
}

void uninstall(Signal& signal) noexcept {
  struct sigaction current {};
  if (!signal.installed || !is_ours(signal, current)) return;
  signal.installed = sigaction(signal.number, &signal.found, nullptr) != 0;
}

}  // namespace

void add_library_code(std::uintptr_t begin, std::uintptr_t end, const char* file) noexcept {
  const std::lock_guard lock(changing);
  for (LibraryCode& library : libraries) {
    if (library.begin.load(std::memory_order_relaxed) == begin) return;  // stayed from before
  }
  for (LibraryCode& library : libraries) {
    if (library.begin.load(std::memory_order_relaxed) != 0) continue;
    library.end.store(end, std::memory_order_relaxed);
    library.file.store(file, std::memory_order_relaxed);
    library.begin.store(begin, std::memory_order_release);
    return;
  }
}

void remove_library_code(std::uintptr_t begin) noexcept {
  const std::lock_guard lock(changing);
  for (LibraryCode& library : libraries) {
    if (library.begin.load(std::memory_order_relaxed) == begin) {
      library.begin.store(0, std::memory_order_release);
    }
  }
}

const char* replaced_signal_handler() noexcept {
  if (!naming.load(std::memory_order_acquire)) return nullptr;
  const std::lock_guard lock(changing);
  for (Signal& signal : signals) {
    struct sigaction current {};
    if (!signal.installed || signal.told || is_ours(signal, current)) continue;
    signal.told = true;
    return signal.name;
  }
  return nullptr;
}

void give_signal_stack() noexcept {
  if (!naming.load(std::memory_order_acquire)) return;
  stack_t current{};
  if (sigaltstack(nullptr, &current) != 0 || (current.ss_flags & SS_DISABLE) == 0) return;
  void* const memory = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return;
  stack_t own{};
  own.ss_sp = memory;
  own.ss_size = stack_bytes;
  if (pthread_setspecific(stack_key, memory) != 0 || sigaltstack(&own, nullptr) != 0) {
    munmap(memory, stack_bytes);
    pthread_setspecific(stack_key, nullptr);
  }
}

KeptSignalStack::KeptSignalStack() noexcept {
  if (!naming.load(std::memory_order_relaxed)) return;
  // A handler that runs on the stack cannot change it.
  is_known_ = sigaltstack(nullptr, &before_) == 0 && (before_.ss_flags & SS_ONSTACK) == 0;
}

KeptSignalStack::~KeptSignalStack() {
  stack_t now{};
  if (!is_known_ || sigaltstack(nullptr, &now) != 0) return;
  if (now.ss_sp != before_.ss_sp || now.ss_size != before_.ss_size ||
      now.ss_flags != before_.ss_flags) {
    sigaltstack(&before_, nullptr);
  }
}

}  // namespace ctxbroker::detail

namespace ctxbroker {

void name_crashes(bool on) noexcept {
  using namespace detail;
  if (on) {
    // The handlers stay while the process lives, so this code has to stay too.
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(&name_crashes), &info) != 0) {
      void* const self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
      if (self != nullptr) dlclose(self);  // takes back this call's count only
    }
    void* caller = nullptr;
    backtrace(&caller, 1);  // loads the unwinder now
    static const int made = pthread_key_create(&stack_key, take_signal_stack);
    if (made != 0) on = false;
  }
  {
    const std::lock_guard lock(changing);
    named_process.store(::getpid());
    naming.store(on, std::memory_order_release);
    for (auto& signal : signals) on ? install(signal) : uninstall(signal);
  }
  if (on) give_signal_stack();
}

}  // namespace ctxbroker
