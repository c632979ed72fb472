// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "progress.hpp"
#include "suggestion.hpp"
#include "support/comma_locale.hpp"
#include "table.hpp"

namespace ctxbroker::sample_host {
namespace {

TEST(Table, AlignsColumns) {
  EXPECT_EQ(format_table({{"plug-in"}, {"launches", Align::right}}, {{"blur", "2"}, {"b", "10"}}),
            "plug-in  launches\n"
            "-------  --------\n"
            "blur            2\n"
            "b              10\n");
}

TEST(Table, CountsCharactersAndTrimsLineEnds) {
  EXPECT_EQ(format_table({{}, {}}, {{"\xc3\xa4", "x"}, {"ab", ""}}), "\xc3\xa4   x\nab\n");
}

TEST(Table, BytesAndSecondsAreFormattedWithUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(33177600), "31.6 MiB");
  EXPECT_EQ(format_bytes(std::uint64_t{140} << 30), "140 GiB");
  EXPECT_EQ(format_bytes((1U << 20) - 1), "1.00 MiB");
  EXPECT_EQ(format_seconds(0), "0 s");
  EXPECT_EQ(format_seconds(12.34e-6), "12.3 us");
  EXPECT_EQ(format_seconds(0.00456), "4.56 ms");
  EXPECT_EQ(format_seconds(0.0009999), "1.00 ms");
  EXPECT_EQ(format_seconds(1.234), "1.23 s");
  EXPECT_EQ(format_seconds(123.4), "123 s");
  EXPECT_EQ(format_number(0.7), "0.7");
  EXPECT_EQ(format_number(20000), "20000");
  EXPECT_EQ(format_number(100000), "100000");
  EXPECT_EQ(format_number(1000000), "1000000");
  EXPECT_EQ(format_number(0.0001), "0.0001");
  EXPECT_EQ(format_number(1e20), "1e+20");
  EXPECT_EQ(format_number(-10), "-10");
}

TEST(Suggestion, EditDistanceCountsChangedCharacters) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("blur", "blur"), 0U);
  EXPECT_EQ(edit_distance("blurr", "blur"), 1U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
}

TEST(Suggestion, NearestNameIsSuggestedOrNone) {
  const std::vector<std::string> names{"exposure", "blur", "gain"};
  EXPECT_EQ(nearest("exposur", names), "exposure");
  EXPECT_EQ(nearest("gian", {"gin", "gain"}), "gin");
  EXPECT_EQ(nearest("equaliser", names), "");
  EXPECT_EQ(nearest("x", {}), "");
  EXPECT_EQ(join(names), "exposure, blur, gain");
}

TEST(Progress, LineFitsTheTerminal) {
  EXPECT_EQ(format_progress("processing", 0.5, 1.25, 42),
            "processing [#######       ]  50%  1.2 s");
  EXPECT_EQ(format_progress("reading", std::nullopt, 2, 80), "reading  2.0 s");
  EXPECT_EQ(format_progress("processing", 2.0, 1, 20), "processing 100%  1.");
  const Amount frames{100, "frames/s"};
  EXPECT_EQ(format_progress("processing", 0.25, 10, 60, frames),
            "processing [####          ]  25%  2.5 frames/s  30 s left");
  EXPECT_EQ(format_progress("processing", 0.25, 100, 40, frames),
            "processing  25%  0.25 frames/s  5:00 mi");
  EXPECT_EQ(format_progress("processing", 0.5, 4500, 200, frames).substr(58),
            "  0.0111 frames/s  1:15 h left");
  EXPECT_EQ(format_progress("processing", 0.0, 1, 42, frames),
            "processing [              ]   0%  1.0 s");
  for (int columns = 0; columns < 100; ++columns) {
    for (const double fraction : {-1.0, 0.0, 0.333, 1.0}) {
      EXPECT_LT(static_cast<int>(format_progress("processing", fraction, 1, columns).size()),
                std::max(columns, 1));
    }
  }
}

TEST(Table, NumbersDoNotDependOnTheLocale) {
  const CommaLocale locale;
  EXPECT_EQ(format_seconds(0.00456), "4.56 ms");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_progress("reading", std::nullopt, 2, 80), "reading  2.0 s");
}

TEST(Progress, NamesWhoIsWaitedForTheLongest) {
  using std::chrono::milliseconds;
  const std::vector<RunningCall> calls{
      {"org.example.blur", "/p/blur.so", "process", 1, milliseconds(3900)},
      {"", "/p/init.so", "init", 2, milliseconds(950)}};
  EXPECT_EQ(waiting_text(calls, std::chrono::seconds(1)), "waiting for blur (process) for 3 s");
  EXPECT_EQ(waiting_text(calls, std::chrono::seconds(4)), "");
  EXPECT_EQ(waiting_text({calls[1]}, std::chrono::seconds(0)),
            "waiting for /p/init.so (init) for 0 s");
  EXPECT_EQ(waiting_text({}, std::chrono::seconds(0)), "");
}

}  // namespace
}  // namespace ctxbroker::sample_host
