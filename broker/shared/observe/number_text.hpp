// SPDX-License-Identifier: Apache-2.0
// Writes and reads numbers in the same way whatever the locale is. Any code of the process may call
// setlocale or std::locale::global, after which the C library and streams write "0,5".
#pragma once

#include <locale.h>

#include <array>
#include <charconv>
#include <string>

namespace ctxbroker::detail {

// Returns the number as printf's "%.{digits}g" writes it in the locale "C". `digits` up to 17.
inline std::string general_text(double value, int digits) {
  std::array<char, 40> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::general, digits);
  return {text.data(), end.ptr};
}

// Returns the number as printf's "%.{decimals}f" writes it in the locale "C". `decimals` up to 17.
inline std::string fixed_text(double value, int decimals) {
  std::array<char, 340> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::fixed, decimals);
  return {text.data(), end.ptr};
}

// While it lives, functions of the C library that the calling thread calls work in the locale "C",
// also where another thread calls setlocale meanwhile.
class InLocaleC {
 public:
  InLocaleC() noexcept : before_(::uselocale(locale())) {}
  ~InLocaleC() { ::uselocale(before_); }
  InLocaleC(const InLocaleC&) = delete;
  InLocaleC& operator=(const InLocaleC&) = delete;

 private:
  // Never freed. Without memory it is null, and the thread's locale stays.
  static locale_t locale() noexcept {
    static const locale_t one = ::newlocale(LC_ALL_MASK, "C", nullptr);
    return one;
  }
  locale_t before_;
};

}  // namespace ctxbroker::detail
