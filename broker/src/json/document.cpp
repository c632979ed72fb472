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

// Makes the document from the library's events. Its own parser takes the last of two members with
// one name, where a person meant one of them, has no limits, and looks for each name among those
// before it. With a callback it takes the square of the time for an array of objects.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(std::string document) : document_(std::move(document)) {}

  Json take() { return std::move(root_); }

  bool null() override { return take_value(nullptr); }
  bool boolean(bool value) override { return take_value(value); }
  bool number_integer(number_integer_t value) override { return take_value(value); }
  bool number_unsigned(number_unsigned_t value) override { return take_value(value); }
  bool number_float(number_float_t value, const string_t&) override { return take_value(value); }
  bool string(string_t& value) override { return take_value(std::move(value)); }
  bool binary(binary_t& value) override { return take_value(std::move(value)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    Container& last = open_.back();
    last.key = std::move(key);
    if (!last.seen.insert(last.key).second) {
      within().refuse("the member stands here twice; one of them has to go");
    }
    if (last.seen.size() > limits::json_members.most) {
      place_of(open_.size() - 1).refuse("the object has " + limits::beyond(limits::json_members));
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    // Without the library's own "[json.exception.parse_error.101] ".
    const std::string what = error.what();
    const std::size_t end = what.find("] ");
    Location{document_, ""}.refuse("is not JSON: " +
                                   (end == std::string::npos ? what : what.substr(end + 2)));
  }

 private:
  struct Container {
    Json* value;
    std::string key;  // of the member that is being read
    std::size_t index;
    std::set<std::string> seen;
  };

  // Made for an error only, because names and arrays can be long.
  Location place_of(std::size_t depth) const {
    Location place{document_, "$"};
    for (std::size_t i = 0; i < depth; ++i) {
      const Container& one = open_[i];
      place = one.value->is_array() ? element(place, one.index) : member(place, one.key);
    }
    return place;
  }
  Location within() const { return place_of(open_.size()); }

  // A container stays where it is while it is open: only closed ones are before and beside it.
  Json& place(Json value) {
    if (!values_.take(1)) {
      Location{document_, ""}.refuse("has " + limits::beyond(limits::json_values));
    }
    if (open_.empty()) return root_ = std::move(value);
    Json& into = *open_.back().value;
    if (into.is_array()) return into.get_ref<Json::array_t&>().emplace_back(std::move(value));
    return into.get_ref<Json::object_t&>().emplace_back(open_.back().key, std::move(value)).second;
  }
  bool take_value(Json value) {
    place(std::move(value));
    if (!open_.empty()) ++open_.back().index;
    return true;
  }
  bool open(Json container) {
    if (open_.size() >= limits::json_nesting.most) {
      within().refuse(limits::beyond(limits::json_nesting));
    }
    open_.push_back({&place(std::move(container)), {}, 0, {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    if (!open_.empty()) ++open_.back().index;
    return true;
  }

  std::string document_;
  Json root_;
  limits::Allowance values_{limits::json_values};
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
  Reader reader(document);
  static_cast<void>(Json::sax_parse(text, &reader));
  return reader.take();
}

std::optional<Json> parsed(std::string_view text) {
  try {
    return parse(text, "");
  } catch (const DocumentError&) {
    return std::nullopt;
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
