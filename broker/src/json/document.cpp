// SPDX-License-Identifier: Apache-2.0
#include "json/document.hpp"

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "observe/number_text.hpp"
#include "observe/regular_file.hpp"

namespace ctxbroker::json {
namespace {

// The library takes the last of two members with one name; a person meant one of them.
class Check {
 public:
  explicit Check(std::string document) : document_(std::move(document)) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (depth >= static_cast<int>(limits::json_nesting.most)) {
          within().refuse(limits::beyond(limits::json_nesting));
        }
        count_value();
        open_.push_back({event == Json::parse_event_t::array_start, {}, 0, {}});
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        open_.pop_back();
        if (!open_.empty()) ++open_.back().index;
        break;
      case Json::parse_event_t::value:
        count_value();
        if (!open_.empty()) ++open_.back().index;
        break;
      case Json::parse_event_t::key:
        take_key(parsed.get<std::string>());
        break;
    }
    return true;
  }

 private:
  struct Container {
    bool is_array;
    std::string key;  // of the member that is being read
    std::size_t index;
    std::set<std::string> seen;
  };

  // Made for an error only, because names and arrays can be long.
  Location place_of(std::size_t depth) const {
    Location place{document_, "$"};
    for (std::size_t i = 0; i < depth; ++i) {
      const Container& one = open_[i];
      place = one.is_array ? element(place, one.index) : member(place, one.key);
    }
    return place;
  }
  Location within() const { return place_of(open_.size()); }

  [[noreturn]] void refuse_whole(const limits::Limit& limit) const {
    Location{document_, ""}.refuse("has " + limits::beyond(limit));
  }

  void count_value() {
    if (!values_.take(1)) refuse_whole(limits::json_values);
  }

  void take_key(std::string key) {
    Container& last = open_.back();
    last.key = std::move(key);
    if (!last.seen.insert(last.key).second) {
      within().refuse("the member stands here twice; one of them has to go");
    }
    if (last.seen.size() > limits::json_members.most) {
      place_of(open_.size() - 1).refuse("the object has " + limits::beyond(limits::json_members));
    }
    // The parser compares each name with those before it.
    if (!compared_.take(last.seen.size() * (last.key.size() + 16))) {
      refuse_whole(limits::json_names);
    }
  }

  std::string document_;
  limits::Allowance values_{limits::json_values}, compared_{limits::json_names};
  std::vector<Container> open_;
};

}  // namespace

Location member(const Location& of, const std::string& name) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || c == '_';
  });
  return {of.document, of.path + (plain ? "." + name : "[" + quoted(name) + "]")};
}

Location element(const Location& of, std::size_t index) {
  return {of.document, of.path + "[" + std::to_string(index) + "]"};
}

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string described(const Json& value) {
  if (value.is_string()) return quoted(value.get_ref<const std::string&>());
  if (value.is_number()) return "the number " + value.dump();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_null()) return "null";
  return value.is_array() ? "an array" : "an object";
}

std::optional<std::uint64_t> whole_number(const Json& value, std::uint64_t most) {
  if (value.is_number_integer()) {
    const bool negative = !value.is_number_unsigned() && value.get<std::int64_t>() < 0;
    const auto number = value.get<std::uint64_t>();
    return !negative && number <= most ? std::optional(number) : std::nullopt;
  }
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  constexpr double beyond = 18446744073709551616.0;  // what no 64-bit number can be
  if (!(number >= 0) || std::trunc(number) != number || number >= beyond) return std::nullopt;
  const auto whole = static_cast<std::uint64_t>(number);
  return whole <= most ? std::optional(whole) : std::nullopt;
}

void Location::refuse(const std::string& why) const {
  constexpr std::size_t longest = 4096;  // names and values of any length come into messages
  std::string message = prefix() + why;
  if (message.size() > longest) message = message.substr(0, longest) + "...";
  throw DocumentError(message);
}

Json parse(std::string_view text, const std::string& document) {
  // To the library, it is the end of the text.
  if (const std::size_t at = text.find('\0'); at != std::string_view::npos) {
    Location{document, ""}.refuse("is not JSON: byte " + std::to_string(at) +
                                  " is a null character");
  }
  const detail::InLocaleC locale;  // the library reads fractions with strtod
  try {
    return Json::parse(text, Check(document));
  } catch (const Json::exception& error) {
    // Without the library's own "[json.exception.parse_error.101] ".
    const std::string what = error.what();
    const std::size_t end = what.find("] ");
    Location{document, ""}.refuse("is not JSON: " +
                                  (end == std::string::npos ? what : what.substr(end + 2)));
  }
}

std::string read_text(const std::filesystem::path& path, const char* what,
                      const limits::Limit& limit) {
  const Location file{std::string(what) + " \"" + path.string() + "\"", ""};
  detail::FileReading reading = detail::read_regular_file(path, limit.most);
  if (reading.is_too_large) file.refuse("the file has " + limits::beyond(limit));
  if (!reading.trouble.empty()) file.refuse(reading.trouble);
  return std::move(reading.bytes);
}

Json parse_document(std::string_view text, const Location& root, const char* schema) {
  Json json = parse(text, root.document);
  if (!json.is_object()) {
    root.refuse(described(json) + " is not allowed here; an object whose member \"schema\" is " +
                quoted(schema) + " is");
  }
  const auto given = json.find("schema");
  if (given == json.end()) {
    root.refuse("the member \"schema\" is missing; it has to be " + quoted(schema));
  }
  if (*given != schema) {
    member(root, "schema")
        .refuse(described(*given) + " is not what this version reads; it reads " + quoted(schema));
  }
  return json;
}

const Json& required(const Json& object, const Location& location, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) location.refuse("the member " + quoted(name) + " is missing");
  return *found;
}

}  // namespace ctxbroker::json
