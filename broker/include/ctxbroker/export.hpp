// CTXB_API marks what the broker's shared library gives to hosts; everything else in it is hidden.
#pragma once

#if defined(_WIN32)
#define CTXB_API
#else
#define CTXB_API __attribute__((visibility("default")))
#endif

// Called so often that the detour by the linker's table is worth leaving out, where the compiler
// knows how.
#if defined(__has_cpp_attribute)
#if __has_cpp_attribute(gnu::noplt)
#define CTXB_NO_PLT [[gnu::noplt]]
#endif
#endif
#if !defined(CTXB_NO_PLT)
#define CTXB_NO_PLT
#endif
