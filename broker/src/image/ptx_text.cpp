// SPDX-License-Identifier: Apache-2.0
#include "image/ptx_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <unordered_set>
#include <utility>

namespace ctxbroker::image {

namespace {

// Takes off everything up to the end of the next `end` at or after `from`.
void skip_behind(std::string_view& text, std::string_view end, std::size_t from) {
  const std::size_t found = text.find(end, from);
  text.remove_prefix(found == std::string_view::npos ? text.size() : found + end.size());
}

constexpr std::string_view blanks = " \t\r\n\f\v";

bool is_word(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%' || c == '.' || c == ':';
}

// Words (with their dots) and single other characters; blanks, comments, strings and lines of the
// preprocessor ("# 1 "blur.cu"") are passed over.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) { next(); }

  std::string_view word() const noexcept { return word_; }  // empty at the end
  bool at(std::string_view word) const noexcept { return word_ == word; }

  void next() {
    skip_to_word();
    std::size_t size = 0;
    while (size < text_.size() && is_word(text_[size])) ++size;
    word_ = text_.substr(0, size == 0 ? std::min<std::size_t>(text_.size(), 1) : size);
    text_.remove_prefix(word_.size());
  }

  // Behind what closes the bracket that stands here.
  void skip_brackets(std::string_view open, std::string_view close) {
    std::size_t depth = 0;
    do {
      if (at(open)) ++depth;
      if (at(close)) --depth;
      next();
    } while (depth > 0 && !word_.empty());
  }

 private:
  void skip_to_word() {
    for (;;) {
      text_.remove_prefix(std::min(text_.find_first_not_of(blanks), text_.size()));
      if (text_.starts_with("//") || text_.starts_with("#")) {
        skip_behind(text_, "\n", 1);
      } else if (text_.starts_with("/*")) {
        skip_behind(text_, "*/", 2);
      } else if (text_.starts_with("\"")) {
        skip_behind(text_, "\"", 1);
      } else {
        return;
      }
    }
  }

  std::string_view text_, word_;
};

std::uint64_t number_of(std::string_view word) noexcept {
  int base = 10;
  if (word.starts_with("0x") || word.starts_with("0X")) {
    word.remove_prefix(2);
    base = 16;
  }
  std::uint64_t number = 0;
  std::from_chars(word.data(), word.data() + word.size(), number, base);
  return number;
}

// Not beyond what fits; nonsense in, nonsense out, but no overflow.
std::uint64_t times(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? 0 : product;
}

// ".b8" 1, ".f16x2" 4, ".v4" 0.
std::uint64_t bytes_of_type(std::string_view word) noexcept {
  constexpr std::pair<std::string_view, std::uint64_t> types[] = {
      {".b8", 1},     {".u8", 1},         {".s8", 1},     {".b16", 2}, {".u16", 2}, {".s16", 2},
      {".f16", 2},    {".bf16", 2},       {".b32", 4},    {".u32", 4}, {".s32", 4}, {".f32", 4},
      {".f16x2", 4},  {".b64", 8},        {".u64", 8},    {".s64", 8}, {".f64", 8}, {".b128", 16},
      {".texref", 8}, {".samplerref", 8}, {".surfref", 8}};
  for (const auto& [name, bytes] : types) {
    if (name == word) return bytes;
  }
  return 0;
}

// Up to the ',' or ';' that ends a declarator: "[4][2] = {1, 2}".
std::uint64_t take_extent(Words& words) {
  std::uint64_t count = 1;
  while (words.at("[")) {
    words.next();
    if (words.at("]")) {
      count = 0;
    } else {
      count = times(count, number_of(words.word()));
      words.next();
    }
    if (words.at("]")) words.next();
  }
  while (!words.word().empty() && !words.at(",") && !words.at(";")) {
    if (words.at("{")) {
      words.skip_brackets("{", "}");
    } else {
      words.next();
    }
  }
  return count;
}

// Behind ".global" or ".const".
void take_variables(Words& words, bool is_constant, bool is_extern, PtxContent& content,
                    Allowances& allowances) {
  std::uint64_t element = 0;
  while (words.word().starts_with(".")) {
    const std::string_view word = words.word();
    words.next();
    if (word == ".align") words.next();
    if (word == ".attribute" && words.at("(")) words.skip_brackets("(", ")");
    if (word == ".v2" || word == ".v4") {
      element = word == ".v2" ? 2 : 4;
    } else if (const std::uint64_t bytes = bytes_of_type(word); bytes != 0) {
      element = bytes * std::max<std::uint64_t>(element, 1);
    }
  }
  while (!words.word().empty() && !words.at(";")) {
    const std::string_view name = words.word();
    words.next();
    const std::uint64_t count = take_extent(words);
    if (!is_extern) {
      allowances.take_name(name.size());
      content.variables.push_back({std::string(name), times(element, count), is_constant});
    }
    if (words.at(",")) words.next();
  }
}

// Behind ".entry": a name is a kernel's when a body follows.
void take_kernel(Words& words, std::unordered_set<std::string_view>& seen, PtxContent& content,
                 Allowances& allowances) {
  const std::string_view name = words.word();
  while (!words.word().empty() && !words.at("{") && !words.at(";")) words.next();
  if (!words.at("{") || !seen.insert(name).second) return;
  allowances.take_name(name.size());
  content.kernels.emplace_back(name);
}

}  // namespace

std::optional<Target> find_target(std::string_view text) {
  Words words(text);
  if (!words.at(".version")) return std::nullopt;
  words.next();
  words.next();
  if (!words.at(".target")) return std::nullopt;
  words.next();
  const std::string_view name = words.word();
  const std::size_t digits = name.find('_') + 1;  // 0 when there is none
  if (!name.starts_with("sm_") && !name.starts_with("compute_")) return std::nullopt;
  Target target;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + digits, end, target.capability);
  if (parsed.ec != std::errc() || target.capability < 1) return std::nullopt;
  if (parsed.ptr == end) return target;
  target.variant = *parsed.ptr;
  const bool known = target.variant == 'a' || target.variant == 'f';
  if (!known || parsed.ptr + 1 != end) return std::nullopt;
  return target;
}

bool runs_on(Target target, int compute) noexcept {
  if (target.variant == 'a') return target.capability == compute;
  if (target.variant == 'f' && target.capability / 10 != compute / 10) return false;
  return target.capability <= compute;
}

std::string to_string(Target target) {
  std::string name = "sm_" + std::to_string(target.capability);
  if (target.variant != '\0') name += target.variant;
  return name;
}

PtxContent scan_ptx(std::string_view text, Allowances& allowances) {
  PtxContent content;
  std::unordered_set<std::string_view> seen;
  bool is_extern = false;
  for (Words words(text); !words.word().empty();) {
    if (words.at("{")) {
      words.skip_brackets("{", "}");
      continue;
    }
    const std::string_view word = words.word();
    words.next();
    if (word == ".version" && content.version.empty()) content.version = words.word();
    if (word == ".address_size") content.is_64_bit = words.at("64");
    if (word == ".entry") take_kernel(words, seen, content, allowances);
    if (word == ".global" || word == ".const") {
      take_variables(words, word == ".const", is_extern, content, allowances);
    }
    if (word == ".extern") {
      is_extern = true;
    } else if (word != ".visible" && word != ".weak" && word != ".common") {
      is_extern = false;
    }
  }
  return content;
}

}  // namespace ctxbroker::image
