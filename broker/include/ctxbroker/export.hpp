// CTXB_API marks what the broker's shared library gives to hosts; everything else in it is hidden.
#pragma once

#if defined(_WIN32)
#define CTXB_API
#else
#define CTXB_API __attribute__((visibility("default")))
#endif
