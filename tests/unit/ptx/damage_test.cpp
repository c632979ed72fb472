// SPDX-License-Identifier: Apache-2.0
// Damaged text: an error or a module, never anything else. The sanitized build is where this bites.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>

#include "ptx_testing.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view language_ptx, arithmetic_ptx, small_ptx;
}

namespace ctxbroker::software::ptx {
namespace {

// From memory that ends where the text ends, so that a sanitizer sees any step beyond. Returns
// whether it was taken for PTX.
bool survives(std::string_view text) {
  const auto copy = std::make_unique<char[]>(text.size());
  std::memcpy(copy.get(), text.data(), text.size());
  try {
    parse({copy.get(), text.size()});
    return true;
  } catch (const SyntaxError& error) {
    EXPECT_GE(error.line(), 1U);
    EXPECT_NE(std::strlen(error.what()), 0U);
    return false;
  }
}

TEST(Damage, EveryPrefixOfAModuleIsSurvived) {
  const std::string_view text = fixtures::small_ptx;
  std::size_t refused = 0;
  for (std::size_t size = 0; size <= text.size(); ++size) {
    if (!survives(text.substr(0, size))) ++refused;
  }
  EXPECT_TRUE(survives(text));
  EXPECT_GT(refused, text.size() / 2) << "most prefixes end inside of a function";
}

TEST(Damage, SampledPrefixesOfLargerModulesAreSurvived) {
  for (const std::string_view text : {fixtures::language_ptx, fixtures::arithmetic_ptx}) {
    for (std::size_t size = 0; size <= text.size(); size += 331) survives(text.substr(0, size));
  }
}

TEST(Damage, ChangedBytesAreSurvived) {
  std::mt19937 random(20240607);
  std::string text(fixtures::small_ptx);
  std::size_t refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::size_t at = random() % text.size();
    const char before = text[at];
    text[at] = static_cast<char>(random());
    if (!survives(text)) ++refused;
    text[at] = before;
  }
  EXPECT_GT(refused, 0U);
}

TEST(Damage, SeveralChangedBytesAreSurvived) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text(fixtures::language_ptx);
    for (int i = 0; i < 8; ++i) text[random() % text.size()] = static_cast<char>(random());
    survives(text);
  }
}

// Changes that bytes alone seldom make: pieces of the grammar in the wrong places.
TEST(Damage, WordsInWrongPlacesAreSurvived) {
  constexpr std::array<std::string_view, 32> words = {"{",
                                                      "}",
                                                      "(",
                                                      ")",
                                                      "[",
                                                      "]",
                                                      ";",
                                                      ",",
                                                      ":",
                                                      "<",
                                                      ">",
                                                      "=",
                                                      "+",
                                                      "-",
                                                      "|",
                                                      "!",
                                                      "@",
                                                      ".reg",
                                                      ".param",
                                                      ".entry",
                                                      ".func",
                                                      ".global",
                                                      ".b32",
                                                      ".align",
                                                      ".v4",
                                                      "0x7fffffffffffffff",
                                                      "0f3F800000",
                                                      "-1",
                                                      "_",
                                                      "generic(",
                                                      ".branchtargets",
                                                      ".section {"};
  std::mt19937 random(99);
  const std::string_view text = fixtures::small_ptx;
  for (int round = 0; round < 20'000; ++round) {
    const std::size_t at = random() % text.size();
    const std::size_t cut = random() % 12;
    std::string changed(text.substr(0, at));
    changed.append(" ").append(words[random() % words.size()]).append(" ");
    changed += text.substr(std::min(at + cut, text.size()));
    survives(changed);
  }
}

TEST(Damage, RandomWordsAreSurvived) {
  constexpr std::array<std::string_view, 24> words = {
      ".version 9.0",    ".target sm_75", ".entry k(", ".param .u32 p", ")", "{",  "}",   ";",
      ".reg .b32 %r<9>", "add.s32",       "%r1",       "%r2|%p1",       ",", "L:", "bra", "L",
      ".global",         ".u32",          "x[2]",      "= {1,{2}}",     "[", "]",  "@",   "!"};
  std::mt19937 random(5);
  for (int round = 0; round < 20'000; ++round) {
    std::string text = ".version 9.0 .target sm_75\n";
    const std::size_t count = random() % 40;
    for (std::size_t i = 0; i < count; ++i) text.append(words[random() % words.size()]).append(" ");
    survives(text);
  }
}

}  // namespace
}  // namespace ctxbroker::software::ptx
