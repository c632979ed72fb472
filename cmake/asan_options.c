/* Linked into every program that is built with AddressSanitizer; see CtxbCompile.cmake. */
const char* __asan_default_options(void);

/* GCC 12's leak checker guesses where glibc keeps the thread-local variables of loaded libraries,
 * guesses wrong with glibc 2.36, and sometimes crashes on the guess at the program's end ("Tracer
 * caught signal 11"). Without the interceptor it does not guess. ASAN_OPTIONS still stands above.
 */
__attribute__((visibility("default"))) const char* __asan_default_options(void) {
  return "intercept_tls_get_addr=0";
}
