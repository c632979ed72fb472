// The driver's handle types, declared as cuda.h declares them, so that a host needs no CUDA Toolkit
// to embed the broker. Including cuda.h before or after this header is fine.
#pragma once

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;

typedef struct CUctx_st* CUcontext;    // NOLINT(modernize-use-using): as in cuda.h
typedef struct CUstream_st* CUstream;  // NOLINT(modernize-use-using)
typedef struct CUevent_st* CUevent;    // NOLINT(modernize-use-using)
