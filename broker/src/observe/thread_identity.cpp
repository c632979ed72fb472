#include "observe/thread_identity.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ctxbroker::detail {

ThreadIdentity this_thread_identity() noexcept {
  ThreadIdentity identity;
  identity.id = static_cast<std::uint64_t>(::syscall(SYS_gettid));
  ::pthread_getname_np(::pthread_self(), identity.name.data(), identity.name.size());
  return identity;
}

}  // namespace ctxbroker::detail
