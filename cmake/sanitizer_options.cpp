// SPDX-License-Identifier: Apache-2.0
// Linked into every program that is built with a sanitizer; see CtxbCompile.cmake. ASAN_OPTIONS and
// TSAN_OPTIONS still stand above.
extern "C" {

#define CTXB_VISIBLE __attribute__((visibility("default")))

const char* __asan_default_options();
const char* __tsan_default_options();
const char* __tsan_default_suppressions();

// GCC 12's sanitizers guess where glibc keeps the thread-local variables of loaded libraries, and
// guess wrong with glibc 2.36: the leak checker sometimes crashes at the program's end ("Tracer
// caught signal 11"), and ThreadSanitizer fails to allocate memory. Without the interceptor they do
// not guess.
CTXB_VISIBLE const char* __asan_default_options() {
  return "intercept_tls_get_addr=0";
}

// A process may end while the broker is open, and then with its threads.
CTXB_VISIBLE const char* __tsan_default_options() {
  return "intercept_tls_get_addr=0:report_thread_leaks=0";
}

// ThreadSanitizer does not see glibc's own locks. glibc frees the thread-local variables of a
// thread that has ended when it takes its stack for another thread, gives a library to a thread
// when another one has loaded it, lists the libraries, and frees what it knows of one that leaves.
// Nor does it see how the C++ library counts who holds an exception, and how the threads of OpenEXR
// wait for each other: both are built without it.
CTXB_VISIBLE const char* __tsan_default_suppressions() {
  return "race:_dl_deallocate_tls\nrace:libOpenEXR\nrace:libIlmThread\nrace:libIex\n"
         "race:ctxbroker::detail::address_in\nrace:dl_iterate_phdr_cb\n"
         "race:_dl_close_worker\nrace:std::__exception_ptr::exception_ptr::_M_release\n";
}

}  // extern "C"
