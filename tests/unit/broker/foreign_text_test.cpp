// SPDX-License-Identifier: Apache-2.0
#include "plugin/foreign_text.hpp"

#include <gmock/gmock.h>

#include <string>
#include <string_view>

#include "text/shown_text.hpp"

namespace ctxbroker::detail {
namespace {

TEST(ForeignTextTest, WellFormedTextPasses) {
  for (const char* text :
       {"", "plain", "\xC3\xBC", "\xE2\x82\xAC", "\xF0\x9F\x8E\xB5", "a\tb\nc"}) {
    EXPECT_TRUE(is_clean_text(text)) << text;
  }
}

TEST(ForeignTextTest, TextWithBadBytesIsRefused) {
  const char* const bad[] = {
      "\x01",              // control character
      "\x7F",              // delete
      "\x80",              // a continuation alone
      "\xC3",              // cut off
      "\xC0\x80",          // overlong
      "\xE0\x80\x80",      // overlong
      "\xED\xA0\x80",      // a surrogate
      "\xF4\x90\x80\x80",  // beyond U+10FFFF
      "\xF5\x80\x80\x80",
      "\xE2\x82",
  };
  for (const char* text : bad) EXPECT_FALSE(is_clean_text(text)) << testing::PrintToString(text);
}

TEST(ForeignTextTest, NullAndTooLongTextIsRefused) {
  EXPECT_EQ(take_text(nullptr), std::nullopt);
  EXPECT_EQ(take_text(std::string(longest_text + 1, 'a').c_str()), std::nullopt);
  EXPECT_EQ(take_text(std::string(longest_text, 'a').c_str())->size(), longest_text);
  EXPECT_EQ(take_text("\xFF"), std::nullopt);
}

TEST(ForeignTextTest, AMessageIsCleanedNotRefused) {
  EXPECT_EQ(take_message(nullptr), "");
  EXPECT_EQ(take_message("a\xFF"
                         "b\x01\xC3\xBC"),
            "a?b?\xC3\xBC");
  EXPECT_EQ(take_message(std::string(longest_text * 2, 'a').c_str()).size(), longest_text);
}

TEST(ForeignTextTest, PluginAndParameterIdsAreChecked) {
  EXPECT_TRUE(is_reverse_dns("com.example.exposure"));
  EXPECT_TRUE(is_reverse_dns("a.b-c_1"));
  for (const char* id : {"", "exposure", ".a", "a.", "a..b", "a.b c", "a.b/c", "\xC3\xBC.a"}) {
    EXPECT_FALSE(is_reverse_dns(id)) << id;
  }
  EXPECT_TRUE(is_parameter_id("gain_db2"));
  for (const char* id : {"", "Gain", "gain-db", "a b"}) EXPECT_FALSE(is_parameter_id(id)) << id;
}

TEST(ShownText, ControlCharactersAreWrittenOut) {
  EXPECT_EQ(printable(std::string_view("a\x1b[31m\0\x7f\r", 9)), "a\\x1b[31m\\x00\\x7f\\x0d");
  EXPECT_EQ(printable("line\n\tä"), "line\n\tä");
}

TEST(ShownText, LongTextIsShortened) {
  EXPECT_EQ(excerpt("5"), "\"5\"");
  EXPECT_EQ(excerpt(std::string(250, 'a')), "\"" + std::string(250, 'a') + "\"");
  EXPECT_EQ(excerpt(std::string(251, 'a')), "\"" + std::string(250, 'a') + "...\" (251 bytes)");
  EXPECT_EQ(excerpt(std::string(249, 'a') + "ää"),
            "\"" + std::string(249, 'a') + "...\" (253 bytes)")
      << "no half of a character";
}

}  // namespace
}  // namespace ctxbroker::detail
