// SPDX-License-Identifier: Apache-2.0
// A locale that writes numbers as "0,5" and "1.000", on systems that have no such locale too.
#pragma once

#include <locale>
#include <string>

#include "support/temp_folder.hpp"

namespace ctxbroker {

// While it lives, the C library and new C++ streams of this process work in that locale.
class CommaLocale {
 public:
  CommaLocale();  // throws std::runtime_error when the C library does not take the locale
  ~CommaLocale();
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;

 private:
  const TempFolder folder_;
  const std::string before_;
  const std::locale streams_before_;
};

}  // namespace ctxbroker
