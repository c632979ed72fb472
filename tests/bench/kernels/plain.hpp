// SPDX-License-Identifier: Apache-2.0
// What the kernels of device.cu compute, in C++ that a compiler sees with -O2. Each function does
// the rows, or the elements, from `first` to `last`.
#pragma once

#include <cstddef>

namespace ctxbroker::bench::plain {

#if defined(__clang__) && __clang_major__ < 15
using Half = __fp16;  // the only name of it there; clang-tidy 14 reads this
#else
using Half = _Float16;
#endif

void vector_add(const float* a, const float* b, float* out, std::size_t first, std::size_t last);
void powers(const float* a, const float* b, float* out, std::size_t first, std::size_t last);
void blur(const float* in, float* out, int width, int height, int first, int last);
void blur(const Half* in, Half* out, int width, int height, int first, int last);
void fir(const float* in, const float* taps, float* out, int count, std::size_t first,
         std::size_t last);
void matrix(const float* a, const float* b, float* out, int size, int first, int last);

}  // namespace ctxbroker::bench::plain
