// SPDX-License-Identifier: Apache-2.0
// JSON documents that people write: read with errors that say where they are and what is allowed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "limits/limits.hpp"

namespace ctxbroker::json {

using Json = nlohmann::ordered_json;  // members stay in the order of the text

// what() is the whole message, on one line: document, place, what is wrong and what is allowed.
class DocumentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A place in a document.
struct Location {
  std::string document;  // "policy \"p.json\""
  std::string path;      // "$.by_id[\"com.example.blur\"].lease"; empty: the document as a whole

  // "policy \"p.json\": $.by_id: ", for the beginning of a message.
  std::string prefix() const { return document + (path.empty() ? ": " : ": " + path + ": "); }
  // A long message is cut.
  [[noreturn]] void refuse(const std::string& why) const;
};

Location member(const Location& of, const std::string& name);
Location element(const Location& of, std::size_t index);

// Returns the text as a JSON string, on one line whatever it holds.
std::string quoted(const std::string& text);
// "the number 7", "an array": what was found.
std::string described(const Json& value);
// A whole number from 0 to `most`, in any spelling that JSON has for it.
std::optional<std::uint64_t> whole_number(const Json& value, std::uint64_t most);

// Throws DocumentError for text that is not JSON, for a member that stands twice in one object, and
// for a document beyond one of the limits json_*.
Json parse(std::string_view text, const std::string& document);
// The same, for text of which it matters only that it is of use: nothing instead of an exception.
std::optional<Json> parsed(std::string_view text);

// The file's text. `what` names the kind: "policy". Throws DocumentError for a file that is
// missing, cannot be read, is not a regular file or has more bytes than the limit. Does not wait
// for a pipe.
std::string read_text(const std::filesystem::path& path, const char* what,
                      const limits::Limit& limit);

// Parses a document of ours. Throws DocumentError unless it is an object
// whose member "schema" is `schema`: a document of another version may have other members.
Json parse_document(std::string_view text, const Location& root, const char* schema);

// A member that has to be there. Throws DocumentError.
const Json& required(const Json& object, const Location& location, const char* name);

// Calls the reader of each member of an object. `readers` is a table of names and what reads them:
// void(const Json& value, const Location& location, Target&...).
template <typename Readers, typename... Target>
void read_members(const Json& object, const Location& location, const Readers& readers,
                  Target&... target) {
  std::string allowed;
  for (const auto& [name, read] : readers) {
    allowed += (allowed.empty() ? "" : ", ") + quoted(name);
  }
  if (!object.is_object()) {
    location.refuse(described(object) + " is not allowed here; an object with members of " +
                    allowed + " is");
  }
  for (const auto& item : object.items()) {
    const auto known = std::find_if(readers.begin(), readers.end(),
                                    [&](const auto& one) { return item.key() == one.first; });
    if (known == readers.end()) {
      member(location, item.key()).refuse("there is no such member; allowed are " + allowed);
    }
    known->second(item.value(), member(location, item.key()), target...);
  }
}

}  // namespace ctxbroker::json
