// SPDX-License-Identifier: Apache-2.0
// Predicates to lane masks, and the blending of some lanes of a slot.
#pragma once

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "exec/level/lanes.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {

CTXB_OP u32 count_lanes(u64 mask) {
  return static_cast<u32>(__builtin_popcountll(mask));
}

// One bit per lane from a predicate slot.
CTXB_OP u64 predicate_mask(const byte* slot) {
#if defined(__AVX512BW__)
  const __m512i all = _mm512_load_si512(slot);
  return _mm512_test_epi8_mask(all, all);
#elif defined(__AVX2__)
  u64 mask = 0;
  for (u64 i = 0; i < 2; ++i) {
    const __m256i part = _mm256_load_si256(reinterpret_cast<const __m256i*>(slot + 32 * i));
    const u32 low = static_cast<u32>(_mm256_movemask_epi8(_mm256_slli_epi16(part, 7)));
    mask |= static_cast<u64>(low) << (32 * i);
  }
  return mask;
#elif defined(__SSE2__)
  u64 mask = 0;
  for (u64 i = 0; i < 4; ++i) {
    const __m128i part = _mm_load_si128(reinterpret_cast<const __m128i*>(slot + 16 * i));
    const u32 low = static_cast<u32>(_mm_movemask_epi8(_mm_slli_epi16(part, 7)));
    mask |= static_cast<u64>(low) << (16 * i);
  }
  return mask;
#else
  u64 mask = 0;
  for (u32 i = 0; i < group_lanes; ++i) mask |= static_cast<u64>(load<u8>(slot + i)) << i;
  return mask;
#endif
}

#if defined(__AVX2__) && !defined(__AVX512BW__)
// Masked stores know 32- and 64-bit elements.
CTXB_OP void blend_32(byte* dst, const byte* from, u64 mask) {
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  for (u64 i = 0; i < 8; ++i) {
    const __m256i part = _mm256_set1_epi32(static_cast<s32>(mask >> (8 * i) & 255));
    const __m256i chosen = _mm256_cmpeq_epi32(_mm256_and_si256(part, bit), bit);
    _mm256_maskstore_epi32(reinterpret_cast<s32*>(dst + 32 * i), chosen,
                           _mm256_load_si256(reinterpret_cast<const __m256i*>(from + 32 * i)));
  }
}
CTXB_OP void blend_64(byte* dst, const byte* from, u64 mask) {
  const __m256i bit = _mm256_setr_epi64x(1, 2, 4, 8);
  for (u64 i = 0; i < 16; ++i) {
    const __m256i part = _mm256_set1_epi64x(static_cast<s64>(mask >> (4 * i) & 15));
    const __m256i chosen = _mm256_cmpeq_epi64(_mm256_and_si256(part, bit), bit);
    _mm256_maskstore_epi64(reinterpret_cast<long long*>(dst + 32 * i), chosen,
                           _mm256_load_si256(reinterpret_cast<const __m256i*>(from + 32 * i)));
  }
}
#endif

template <class T>
CTXB_OP void blend_lanes(byte* dst, const byte* from, u64 mask) {
  T* d = lanes_at<T>(dst);
  const T* s = lanes_at<T>(from, 0);
  for (u32 first = 0; first < group_lanes; first += 8) {
    const u32 part = static_cast<u32>(mask >> first) & 255;
    _Pragma("GCC ivdep") for (u32 i = 0; i < 8; ++i) {
      const T keep = static_cast<T>(static_cast<T>(part >> i & 1) - T{1});
      d[first + i] = static_cast<T>((d[first + i] & keep) | (s[first + i] & static_cast<T>(~keep)));
    }
  }
}

// Copies the lanes in `mask` of a slot of `width` bytes per lane.
CTXB_OP void blend(byte* dst, const byte* from, u64 mask, u32 width) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  switch (width) {
    case 1:
      _mm512_mask_storeu_epi8(dst, mask, _mm512_load_si512(from));
      return;
    case 2:
      for (u64 i = 0; i < 2; ++i) {
        _mm512_mask_storeu_epi16(dst + 64 * i, static_cast<__mmask32>(mask >> (32 * i)),
                                 _mm512_load_si512(from + 64 * i));
      }
      return;
    case 4:
      for (u64 i = 0; i < 4; ++i) {
        _mm512_mask_storeu_epi32(dst + 64 * i, static_cast<__mmask16>(mask >> (16 * i)),
                                 _mm512_load_si512(from + 64 * i));
      }
      return;
    default:
      for (u64 i = 0; i < 8; ++i) {
        _mm512_mask_storeu_epi64(dst + 64 * i, static_cast<__mmask8>(mask >> (8 * i)),
                                 _mm512_load_si512(from + 64 * i));
      }
      return;
  }
#else
  switch (width) {
    case 1:
      return blend_lanes<u8>(dst, from, mask);
    case 2:
      return blend_lanes<u16>(dst, from, mask);
#ifdef __AVX2__
    case 4:
      return blend_32(dst, from, mask);
    default:
      return blend_64(dst, from, mask);
#else
    case 4:
      return blend_lanes<u32>(dst, from, mask);
    default:
      return blend_lanes<u64>(dst, from, mask);
#endif
  }
#endif
}

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
