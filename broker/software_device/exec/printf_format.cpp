// SPDX-License-Identifier: Apache-2.0
#include "exec/printf_format.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <string_view>

#include "observe/number_text.hpp"

namespace ctxbroker::software::exec {
namespace {

// "%[flags][width][.precision][size]type", without any argument.
struct Specifier {
  std::string flags = {};
  int width = 0;
  int precision = -1;  // none
  bool width_is_argument = false;
  std::string_view size = {};
  char type = 0;
  std::size_t length = 0;  // characters, the % among them
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class SpecifierParser {
 public:
  // `text` begins with the %. Nothing if it is none of those that CUDA has: C has more of them
  // (%zu, %hhd, %.*f, %n, %Lf), for which GPUs print themselves or nonsense.
  static std::optional<Specifier> parse(std::string_view text) {
    SpecifierParser parser(text);
    return parser.parse();
  }

 private:
  explicit SpecifierParser(std::string_view text) : text_(text) {}

  std::optional<Specifier> parse() {
    constexpr std::string_view flags = "-+ #0";
    Specifier found;
    while (flags.find(peek()) != std::string_view::npos) {
      const char flag = text_[at_++];
      if (found.flags.find(flag) == std::string::npos) found.flags += flag;
    }
    found.width_is_argument = take("*");
    if (!found.width_is_argument) found.width = std::min(number(), most_width);
    if (take(".")) found.precision = number();
    for (const std::string_view size : {"h", "ll", "l"}) {
      if (found.size.empty() && take(size)) found.size = size;
    }
    constexpr std::string_view types = "diouxXcspeEfFgGaA";
    if (types.find(peek()) == std::string_view::npos) return std::nullopt;
    found.type = text_[at_++];
    found.length = at_;
    return found;
  }

  // The text has no zero in it: that is its end.
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  // Beyond most_text all are the same.
  int number() {
    constexpr int most = most_text;
    int value = 0;
    for (; is_digit(peek()); ++at_) value = std::min(value * 10 + (peek() - '0'), most);
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 1;
};

class Formatter {
 public:
  Formatter(DeviceReader& memory, std::uint64_t arguments)
      : memory_(memory), arguments_(arguments) {}

  std::optional<FormattedText> run(std::uint64_t address) {
    const std::optional<std::string> format = string_at(address, most_text);
    if (!format) return std::nullopt;
    for (std::string_view rest = *format; !rest.empty() && result_.text.size() < most_text;) {
      const std::size_t plain = std::min(rest.find('%'), rest.size());
      result_.text.append(rest.substr(0, plain));
      rest.remove_prefix(plain);
      if (rest.empty()) break;
      if (rest.starts_with("%%")) {
        result_.text += '%';
        rest.remove_prefix(2);
        continue;
      }
      const std::optional<Specifier> specifier = SpecifierParser::parse(rest);
      if (!specifier || used_by(*specifier) > most_arguments - used_) {
        const std::size_t as_it_stands = specifier ? specifier->length : 1;
        result_.text.append(rest.substr(0, as_it_stands));
        rest.remove_prefix(as_it_stands);
        continue;
      }
      if (!print(*specifier)) return std::nullopt;
      rest.remove_prefix(specifier->length);
    }
    if (result_.text.size() > most_text) result_.text.resize(most_text);
    return std::move(result_);
  }

 private:
  static int used_by(const Specifier& specifier) { return specifier.width_is_argument ? 2 : 1; }

  // False: a read failed.
  bool print(Specifier specifier) {
    result_.arguments += used_by(specifier);
    if (specifier.width_is_argument && !take_width(specifier)) return false;
    switch (specifier.type) {
      case 'c':
        return print_character(specifier);
      case 's':
        return print_string(specifier);
      case 'p':
        return print_pointer(specifier);
      case 'd':
      case 'i':
        return print_signed(specifier);
      case 'o':
      case 'u':
      case 'x':
      case 'X':
        return print_unsigned(specifier);
      default:
        return print_double(specifier);
    }
  }

  // A negative one means what it means in C: to the left.
  bool take_width(Specifier& specifier) {
    std::int32_t width = 0;
    if (!take(width)) return false;
    if (width < 0) specifier.flags += '-';
    // Before it is negated, which the least of all integers cannot be.
    width = std::clamp(width, -most_width, most_width);
    specifier.width = width < 0 ? -width : width;
    return true;
  }

  bool print_character(const Specifier& specifier) {
    std::int32_t value = 0;
    if (!take(value)) return false;
    pad(specifier, std::string(1, static_cast<char>(value)));
    return true;
  }

  bool print_string(const Specifier& specifier) {
    std::uint64_t address = 0;
    if (!take(address)) return false;
    if (address == 0) {
      // What a GPU prints, and C libraries.
      constexpr std::string_view null = "(null)";
      const bool fits =
          specifier.precision < 0 || specifier.precision >= static_cast<int>(null.size());
      pad(specifier, fits ? null : "");
      return true;
    }
    const std::size_t most =
        specifier.precision < 0 ? most_text : static_cast<std::size_t>(specifier.precision);
    const std::optional<std::string> value = string_at(address, most);
    if (value) pad(specifier, *value);
    return value.has_value();
  }

  bool print_pointer(const Specifier& specifier) {
    std::uint64_t value = 0;
    if (!take(value)) return false;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): only its bits are printed
    print_with_c(specifier, "", reinterpret_cast<const void*>(value));
    return true;
  }

  bool print_signed(const Specifier& specifier) {
    std::int64_t value = 0;
    if (!take_integer(specifier, value)) return false;
    print_with_c(specifier, "ll", static_cast<long long>(value));
    return true;
  }

  bool print_unsigned(const Specifier& specifier) {
    std::int64_t value = 0;
    if (!take_integer(specifier, value)) return false;
    auto bits = static_cast<std::uint64_t>(value);
    if (specifier.size.empty()) bits = static_cast<std::uint32_t>(bits);
    if (specifier.size == "h") bits = static_cast<std::uint16_t>(bits);
    print_with_c(specifier, "ll", static_cast<unsigned long long>(bits));
    return true;
  }

  bool print_double(const Specifier& specifier) {
    double value = 0;
    if (!take(value)) return false;
    print_with_c(specifier, "", value);
    return true;
  }

  // An int, or 64 bits; a short was passed as an int.
  bool take_integer(const Specifier& specifier, std::int64_t& value) {
    if (specifier.size.starts_with('l')) return take(value);
    std::int32_t narrow = 0;
    if (!take(narrow)) return false;
    value = specifier.size == "h" ? static_cast<std::int16_t>(narrow) : narrow;
    return true;
  }

  template <class T>
  bool take(T& value) {
    next_ = (next_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    if (!memory_.read(arguments_ + next_, std::as_writable_bytes(std::span(&value, 1)))) {
      return false;
    }
    next_ += sizeof(T);
    ++used_;
    return true;
  }

  // Up to the zero, or to `most` characters: those behind are never touched.
  std::optional<std::string> string_at(std::uint64_t address, std::size_t most) {
    std::string text;
    while (text.size() < most) {
      char next = 0;
      if (!memory_.read(address + text.size(), std::as_writable_bytes(std::span(&next, 1)))) {
        return std::nullopt;
      }
      if (next == '\0') break;
      text += next;
    }
    return text;
  }

  void pad(const Specifier& specifier, std::string_view value) {
    const auto width = static_cast<std::size_t>(specifier.width);
    const std::size_t blanks = width - std::min(width, value.size());
    const bool is_left = specifier.flags.find('-') != std::string::npos;
    result_.text.append(is_left ? 0 : blanks, ' ').append(value).append(is_left ? blanks : 0, ' ');
  }

  // The C library gets one specifier at a time, put together here from parts that were looked at,
  // and one value of the type that belongs to it.
  template <class T>
  void print_with_c(const Specifier& specifier, const char* size, T value) {
    // The digits before a double's point, those behind it, and what stands around them.
    constexpr std::size_t longest =
        std::numeric_limits<double>::max_exponent10 + std::size_t{most_width} + 64;
    std::array<char, longest> text;
    const ctxbroker::detail::InLocaleC locale;
    const std::string one = "%" + specifier.flags + "*.*" + size + specifier.type;
    const int length = std::snprintf(text.data(), text.size(), one.c_str(), specifier.width,
                                     std::min(specifier.precision, most_width), value);
    if (length > 0) {
      result_.text.append(text.data(), std::min(static_cast<std::size_t>(length), text.size() - 1));
    }
  }

  DeviceReader& memory_;
  std::uint64_t arguments_;
  std::uint64_t next_ = 0;  // bytes of the arguments before the next one
  int used_ = 0;            // arguments, widths among them
  FormattedText result_;
};

}  // namespace

std::optional<FormattedText> format_text(DeviceReader& memory, std::uint64_t format,
                                         std::uint64_t arguments) {
  return Formatter(memory, arguments).run(format);
}

}  // namespace ctxbroker::software::exec
