// SPDX-License-Identifier: Apache-2.0
/// @file
/// The driver's handle types, declared as cuda.h declares them. A host needs no CUDA Toolkit to
/// embed the broker. cuda.h may be included before or after this header.
#pragma once

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;

typedef struct CUctx_st* CUcontext;  ///< A CUDA context. NOLINT(modernize-use-using): as in cuda.h
typedef struct CUstream_st* CUstream;  ///< A CUDA stream. NOLINT(modernize-use-using)
typedef struct CUevent_st* CUevent;    ///< A CUDA event. NOLINT(modernize-use-using)
