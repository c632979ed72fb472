// SPDX-License-Identifier: Apache-2.0
#include "env_command.hpp"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <optional>
#include <string_view>

#include "settings.hpp"

namespace ctxbroker::launch {
namespace {

constexpr std::string_view needed[] = {"LD_PRELOAD", "LD_LIBRARY_PATH", settings_variable};

enum class Value { none, needed, optional };  // an optional one stands behind a "="
struct Option {
  char letter;  // 0: it has none
  std::string_view name;
  Value value;
};
// Those of GNU coreutils.
constexpr Option known[] = {{'i', "ignore-environment", Value::none},
                            {'0', "null", Value::none},
                            {'u', "unset", Value::needed},
                            {'C', "chdir", Value::needed},
                            {'S', "split-string", Value::needed},
                            {'a', "argv0", Value::needed},
                            {'v', "debug", Value::none},
                            {'\0', "block-signal", Value::optional},
                            {'\0', "default-signal", Value::optional},
                            {'\0', "ignore-signal", Value::optional},
                            {'\0', "list-signal-handling", Value::none},
                            {'\0', "help", Value::none},
                            {'\0', "version", Value::none}};

const Option* by_letter(char letter) {
  const auto* const found =
      std::find_if(std::begin(known), std::end(known),
                   [&](const Option& one) { return letter != '\0' && one.letter == letter; });
  return found != std::end(known) ? found : nullptr;
}

// A long option may be shortened as long as it is the only one that begins so.
const Option* by_name(std::string_view name) {
  const auto begins = [&](const Option& one) { return one.name.starts_with(name); };
  const auto* const found = std::find_if(std::begin(known), std::end(known), begins);
  if (found == std::end(known)) return nullptr;
  const bool is_only = std::count_if(std::begin(known), std::end(known), begins) == 1;
  return is_only || found->name == name ? found : nullptr;
}

// Adds the character behind a backslash in the text of -S. Returns false where the text ends.
bool add_escaped(char escaped, bool is_quoted, std::string& word, bool& ends_word) {
  constexpr std::string_view names = "fnrtv", meanings = "\f\n\r\t\v";
  if (escaped == 'c') return false;
  if (escaped == '_' && !is_quoted) {
    ends_word = true;
  } else if (const std::size_t at = names.find(escaped); at != std::string_view::npos) {
    word += meanings[at];
  } else {
    word += escaped == '_' ? ' ' : escaped;
  }
  return true;
}

// The words of the text of -S.
std::deque<std::string> split(std::string_view text) {
  std::deque<std::string> words;
  std::optional<std::string> word;
  char quote = '\0';
  const auto end_word = [&] {
    if (word) words.push_back(*word);
    word.reset();
  };
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char one = text[at];
    const bool is_blank = std::string_view(" \t\n\v\f\r").find(one) != std::string_view::npos;
    if (quote == '\0' && (is_blank || (one == '#' && !word))) {
      end_word();
      if (one == '#') break;
      continue;
    }
    const bool escapes = one == '\\' && at + 1 < text.size() &&
                         (quote != '\'' || text[at + 1] == '\'' || text[at + 1] == '\\');
    if (escapes) {
      bool ends_word = false;
      if (!word) word.emplace();
      if (!add_escaped(text[++at], quote != '\0', *word, ends_word)) break;
      if (ends_word) end_word();
      continue;
    }
    if (!word) word.emplace();
    if (quote == '\0' ? one == '"' || one == '\'' : one == quote) {
      quote = quote == '\0' ? one : '\0';
      continue;
    }
    const std::size_t end = text.find('}', at);
    if (one == '$' && quote != '\'' && text.substr(at, 2) == "${" && end != text.npos) {
      const std::string name(text.substr(at + 2, end - at - 2));
      const char* const value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
      *word += value != nullptr ? value : "";
      at = end;
      continue;
    }
    *word += one;
  }
  end_word();
  return words;
}

class Reader {
 public:
  explicit Reader(const std::vector<std::string>& arguments)
      : rest_(arguments.begin(), arguments.end()) {}

  EnvCommand read() {
    bool has_options = true;
    while (!rest_.empty()) {
      const std::string word = take();
      if (has_options && word == "--") {
        has_options = false;
      } else if (has_options && word == "-") {
        clear(word);
        has_options = false;
      } else if (has_options && word.rfind("--", 0) == 0) {
        if (!read_long(word.substr(2))) return made_;
      } else if (has_options && word[0] == '-') {
        if (!read_letters(word)) return made_;
      } else if (const std::size_t equals = word.find('='); equals != std::string::npos) {
        has_options = false;
        change(word.substr(0, equals), word.substr(0, equals) + "=... replaces what ctxb-run sets");
      } else {
        made_.command.assign(rest_.begin(), rest_.end());
        made_.command.insert(made_.command.begin(), word);
        return made_;
      }
    }
    return made_;
  }

 private:
  std::string take() {
    std::string word = rest_.front();
    rest_.pop_front();
    return word;
  }

  // These return false where env fails or runs no program.
  bool read_long(const std::string& text) {
    const std::size_t equals = text.find('=');
    const Option* const option = by_name(std::string_view(text).substr(0, equals));
    if (option == nullptr) return false;
    if (equals != std::string::npos) return apply(*option, text.substr(equals + 1));
    if (option->value != Value::needed) return apply(*option, "");
    return !rest_.empty() && apply(*option, take());
  }
  bool read_letters(const std::string& word) {
    for (std::size_t at = 1; at < word.size(); ++at) {
      const Option* const option = by_letter(word[at]);
      if (option == nullptr) return false;
      if (option->value == Value::none) {
        if (!apply(*option, "")) return false;
        continue;
      }
      if (at + 1 < word.size()) return apply(*option, word.substr(at + 1));
      return !rest_.empty() && apply(*option, take());
    }
    return true;
  }
  bool apply(const Option& option, const std::string& value) {
    if (option.name == "help" || option.name == "version") return false;
    if (option.letter == 'i') clear("-i");
    if (option.letter == 'u') change(value, "-u " + value + " removes what ctxb-run sets");
    if (option.letter == 'C') made_.folder = value;
    if (option.letter == 'S') {
      const std::deque<std::string> words = split(value);
      rest_.insert(rest_.begin(), words.begin(), words.end());
    }
    return true;
  }

  void clear(const std::string& option) {
    if (made_.lost.empty()) made_.lost = option + " clears the environment";
  }
  void change(const std::string& variable, const std::string& how) {
    made_.changes_path |= variable == "PATH";
    const bool is_needed =
        std::find(std::begin(needed), std::end(needed), variable) != std::end(needed);
    if (is_needed && made_.lost.empty()) made_.lost = how;
  }

  std::deque<std::string> rest_;
  EnvCommand made_;
};

}  // namespace

EnvCommand read_env_command(const std::vector<std::string>& arguments) {
  return Reader(arguments).read();
}

}  // namespace ctxbroker::launch
