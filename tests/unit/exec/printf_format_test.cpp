// SPDX-License-Identifier: Apache-2.0
// The text of a device printf, made of formats that compilers write and of those that none would.
#include "exec/printf_format.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "support/comma_locale.hpp"

namespace ctxbroker::software::exec {
namespace {

// The memory of a kernel: a few strings and the arguments. Reads outside of them fail.
class Memory final : public DeviceReader {
 public:
  // Its address. It ends in no zero but those that it has.
  std::uint64_t add(std::string_view bytes) {
    pieces_.emplace_back(bytes);
    return pieces_.size() << 32;
  }
  std::uint64_t add_string(std::string_view text) { return add(std::string(text) + '\0'); }

  bool read(std::uint64_t address, std::span<std::byte> into) override {
    ++reads;
    const std::uint64_t piece = address >> 32, offset = address & 0xffffffff;
    EXPECT_EQ(offset % into.size(), 0U) << "not aligned";
    if (piece == 0 || piece > pieces_.size()) return false;
    const std::string& bytes = pieces_[piece - 1];
    if (offset > bytes.size() || bytes.size() - offset < into.size()) return false;
    std::memcpy(into.data(), bytes.data() + offset, into.size());
    return true;
  }

  std::size_t reads = 0;

 private:
  std::vector<std::string> pieces_;
};

// Arguments as a compiler lays them out.
class Packed {
 public:
  template <class... T>
  explicit Packed(T... values) {
    (add(values), ...);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  template <class T>
  void add(T value) {
    bytes_.resize((bytes_.size() + sizeof(T) - 1) / sizeof(T) * sizeof(T));
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  std::string bytes_;
};

struct Case {
  const char* format;
  Packed arguments;
  std::string text;
  int returned;
};

void expect_texts(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    SCOPED_TRACE(one.format);
    Memory memory;
    const std::uint64_t format = memory.add_string(one.format);
    const auto made = format_text(memory, format, memory.add(one.arguments.bytes()));
    if (!made) {
      ADD_FAILURE() << "a read failed";
      continue;
    }
    EXPECT_EQ(made->text, one.text);
    EXPECT_EQ(made->arguments, one.returned);
  }
}

constexpr long long big = -5000000000;

TEST(PrintfFormat, NumbersDoNotDependOnTheLocale) {
  const CommaLocale locale;
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%.2f", 1.5);
  ASSERT_STREQ(text.data(), "1,50") << "the control";
  expect_texts({{"%.2f %g %e %a %'d", Packed(1.5, 0.5, 1e10, 1.5, 1),
                 "1.50 0.5 1.000000e+10 0x1.8p+0 %'d", 4}});
}

TEST(PrintfFormat, FormatsPrintWhatCPrints) {
  expect_texts({
      {"", Packed(), "", 0},
      {"plain\n", Packed(), "plain\n", 0},
      {"100%%", Packed(), "100%", 0},
      {"%d,%i,%u", Packed(-1, 2, -1), "-1,2,4294967295", 3},
      {"%o %x %X %#x %#o", Packed(8, 255, 255, 255, 8), "10 ff FF 0xff 010", 5},
      {"%ld %lld %lu", Packed(big, big, 7ULL), "-5000000000 -5000000000 7", 3},
      {"%d %lld %d", Packed(1, big, 2), "1 -5000000000 2", 3},
      {"%llx", Packed(big), "fffffffed5fa0e00", 1},
      {"%hd %hu %hx", Packed(65578, -65494, -1), "42 42 ffff", 3},
      {"%f %.2f %e %E", Packed(1.5, 1.005, 1e10, 1e10), "1.500000 1.00 1.000000e+10 1.000000E+10",
       4},
      {"%g %G %a %A %F", Packed(1e-5, 1e-10, 1.0, 1.0, 1.5), "1e-05 1E-10 0x1p+0 0X1P+0 1.500000",
       5},
      {"%lf %hf %.f", Packed(1.25, 2.5, 3.7), "1.250000 2.500000 4", 3},
      {"%f %F %e",
       Packed(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(),
              std::numeric_limits<double>::quiet_NaN()),
       "inf INF nan", 3},
      {"%d %f", Packed(1, 2.0), "1 2.000000", 2},
      {"[%c|%5c|%-5c]", Packed(97, 98, 99), "[a|    b|c    ]", 3},
      {"%c", Packed(0), std::string(1, '\0'), 1},
      {"%p %p %8p|%-8p|", Packed(0x1234ULL, 0ULL, 0x12ULL, 0x12ULL),
       "0x1234 (nil)     0x12|0x12    |", 4},
  });
}

TEST(PrintfFormat, PrintsFlagsWidthsAndPrecisions) {
  expect_texts({
      {"[%5d|%-5d|%05d|%+d|% d]", Packed(42, 42, 42, 42, 42), "[   42|42   |00042|+42| 42]", 5},
      {"[%8.3f|%-8.3f|%08.3f]", Packed(1.5, 1.5, 1.5), "[   1.500|1.500   |0001.500]", 3},
      {"[%.5d|%8.5d|%.0d]", Packed(42, 42, 0), "[00042|   00042|]", 3},
      {"[%-----5d|%+ #05d]", Packed(42, 42), "[42   |+0042]", 2},
      {"[%*d|%*d]", Packed(5, 42, -5, 42), "[   42|42   ]", 4},
      {"%*lld", Packed(12, big), " -5000000000", 2},
      {"%*.2f", Packed(6, 1.5), "  1.50", 2},
  });
}

TEST(PrintfFormat, UnknownSpecifiersArePrintedAsTheyStand) {
  expect_texts({
      {"%n %y %5q %", Packed(), "%n %y %5q %", 0},
      {"%5% %-", Packed(), "%5% %-", 0},
      {"%n%d", Packed(42), "%n42", 1},
      {"%zu %hhd %jd %td %Lf %d", Packed(42), "%zu %hhd %jd %td %Lf 42", 1},
      {"%.*f %d", Packed(42), "%.*f 42", 1},
      {"%**d %1$d %d", Packed(42), "%**d %1$d 42", 1},
      {"%lll %lld", Packed(big), "%lll -5000000000", 1},
      {"%\xff\x80", Packed(), "%\xff\x80", 0},
  });
}

TEST(PrintfFormat, PrintsSpecifiersBeyond32ArgumentsAsTheyStand) {
  std::string format, text;
  std::vector<int> values;
  for (int i = 0; i < 31; ++i) {
    format += "%d ";
    text += std::to_string(i) + " ";
    values.push_back(i);
  }
  values.push_back(31);
  Memory memory;
  const auto arguments =
      memory.add({reinterpret_cast<const char*>(values.data()), 32 * sizeof(int)});
  // Two do not fit any more, one does.
  const auto made = format_text(memory, memory.add_string(format + "%*d %d %d %c"), arguments);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->text, text + "%*d 31 %d %c");
  EXPECT_EQ(made->arguments, 32);
}

TEST(PrintfFormat, PrintsStrings) {
  Memory memory;
  const std::uint64_t text = memory.add_string("string");
  const std::uint64_t open = memory.add("open");  // no zero ends it
  const auto made = [&](const char* format, const Packed& arguments) {
    const auto result =
        format_text(memory, memory.add_string(format), memory.add(arguments.bytes()));
    return result ? result->text : "a read failed";
  };
  EXPECT_EQ(made("%s %d %s", Packed(text, 1, text)), "string 1 string");
  EXPECT_EQ(made("[%8s|%-8s|%.2s|%8.2s|%*s]", Packed(text, text, text, text, 9, text)),
            "[  string|string  |st|      st|   string]");
  EXPECT_EQ(made("[%s|%.3s|%8s]", Packed(0ULL, 0ULL, 0ULL)), "[(null)||  (null)]");
  EXPECT_EQ(made("%.4s", Packed(open)), "open");
  EXPECT_EQ(made("%.5s", Packed(open)), "a read failed");
  EXPECT_EQ(made("%s", Packed(open)), "a read failed");
  EXPECT_EQ(made("%.0s", Packed(0xdeadULL << 32)), "");
  EXPECT_EQ(made("%s", Packed(0xdeadULL << 32)), "a read failed");
}

TEST(PrintfFormat, UnreadableFormatOrArgumentsFail) {
  Memory memory;
  const std::uint64_t few = memory.add(Packed(1).bytes());
  EXPECT_FALSE(format_text(memory, 16, few));
  EXPECT_FALSE(format_text(memory, memory.add("no end"), few));
  EXPECT_FALSE(format_text(memory, memory.add_string("%d %d"), few));
  EXPECT_FALSE(format_text(memory, memory.add_string("%d"), 0));
  EXPECT_FALSE(format_text(memory, memory.add_string("%*d"), few));
}

TEST(PrintfFormat, HugeWidthsAndPrecisionsAreBounded) {
  Memory memory;
  const auto length_of = [&](const std::string& format, const Packed& arguments) {
    const auto made = format_text(memory, memory.add_string(format), memory.add(arguments.bytes()));
    return made ? made->text.size() : 0;
  };
  constexpr int least = std::numeric_limits<int>::min(), most = std::numeric_limits<int>::max();
  EXPECT_EQ(length_of("%999999999999999999999d", Packed(1)), std::size_t{most_width});
  EXPECT_EQ(length_of("%2147483648s", Packed(memory.add_string("x"))), std::size_t{most_width});
  EXPECT_EQ(length_of("%*d", Packed(most, 1)), std::size_t{most_width});
  EXPECT_EQ(length_of("%*d", Packed(least, 1)), std::size_t{most_width});
  EXPECT_EQ(length_of("%*c", Packed(least, 1)), std::size_t{most_width});
  EXPECT_EQ(length_of("%.999999999d", Packed(1)), std::size_t{most_width});
  constexpr double largest = std::numeric_limits<double>::max();
  EXPECT_EQ(length_of("%.999999999f", Packed(-largest)), std::size_t{1 + 309 + 1 + most_width});
  EXPECT_EQ(length_of("%.999999999a", Packed(-largest)), std::size_t{11 + most_width});
  EXPECT_EQ(length_of("%" + std::string(100000, '-') + "5d", Packed(1)), most_text);
  EXPECT_EQ(length_of("%" + std::string(10000, '-') + "5d", Packed(1)), 5U);

  const std::uint64_t text = memory.add_string(std::string(100, 'x') + std::string(1 << 20, 'y'));
  const std::size_t reads = memory.reads;
  EXPECT_EQ(length_of("%s%s%s%s", Packed(text, text, text, text)), most_text);
  EXPECT_LE(memory.reads, reads + most_text + 20);
  EXPECT_EQ(length_of("%.5000s", Packed(text)), 5000U);
  EXPECT_EQ(length_of("%.99999999999s", Packed(text)), most_text);
  EXPECT_EQ(length_of(std::string(1 << 20, 'z'), Packed()), most_text);
}

}  // namespace
}  // namespace ctxbroker::software::exec
