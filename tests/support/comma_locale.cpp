// SPDX-License-Identifier: Apache-2.0
#include "support/comma_locale.hpp"

#include <array>
#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string_view>

namespace ctxbroker {
namespace {

// The file that glibc reads for LC_NUMERIC: a number that says so, the places of six values, and
// the values. Characters stand there as text and as numbers.
std::string numeric_file() {
  constexpr std::uint32_t magic = 0x20031115 ^ LC_NUMERIC;
  using namespace std::literals;
  const std::array<std::string_view, 6> values = {",\0"sv,     ".\0"sv,     "\3\3\0"sv,
                                                  ",\0\0\0"sv, ".\0\0\0"sv, "UTF-8\0"sv};
  std::array<std::uint32_t, 2 + values.size()> head{magic, values.size()};
  std::string data;
  for (std::size_t i = 0; i < values.size(); ++i) {
    data.resize((data.size() + 3) / 4 * 4);
    head[2 + i] = static_cast<std::uint32_t>(sizeof head + data.size());
    data += values[i];
  }
  return std::string(reinterpret_cast<const char*>(head.data()), sizeof head) + data;
}

// Blanks between thousands, as in French, are what hurts most: streams then read "4 5" as one.
class Blanks : public std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return ' '; }
  std::string do_grouping() const override { return "\3"; }
};

}  // namespace

CommaLocale::CommaLocale() : before_(std::setlocale(LC_NUMERIC, nullptr)) {
  std::filesystem::create_directory(folder_ / "comma");
  write_bytes(folder_ / "comma/LC_NUMERIC", numeric_file());
  setenv("LOCPATH", folder_.path().c_str(), 1);  // NOLINT(concurrency-mt-unsafe): no other thread
  std::locale::global(std::locale(std::locale::classic(), new Blanks));
  const bool is_set = std::setlocale(LC_NUMERIC, "comma") != nullptr;
  unsetenv("LOCPATH");  // NOLINT(concurrency-mt-unsafe)
  if (!is_set) {
    std::locale::global(streams_before_);
    throw std::runtime_error("the C library does not take the locale");
  }
}

CommaLocale::~CommaLocale() {
  std::locale::global(streams_before_);
  std::setlocale(LC_NUMERIC, before_.c_str());
}

}  // namespace ctxbroker
