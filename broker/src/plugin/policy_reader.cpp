// Policies from JSON. Everything is checked before anything is given back.
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ctxbroker/error.hpp"
#include "ctxbroker/policy.hpp"
#include "plugin/foreign_text.hpp"

namespace ctxbroker {
namespace {

using Json = nlohmann::json;

constexpr const char* schema_name = "ctxbroker.policy/1";
constexpr std::size_t largest_file = std::size_t{1} << 20;               // bytes
constexpr std::uint64_t largest_budget = (std::uint64_t{1} << 53U) - 1;  // exact in all of JSON
constexpr std::uint64_t largest_device = 1023;
constexpr unsigned most_multiprocessors = 999'999'999;  // nine digits: the schema's pattern

// Where in which document: for errors.
struct Location {
  std::string document;
  std::string path;  // "$.by_id[\"com.example.blur\"].lease"

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorKind::policy, document + (path.empty() ? ": " : ": " + path + ": ") + why);
  }
};

// As in JSON, on one line whatever it holds.
std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

Location member(const Location& of, const std::string& name) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || c == '_';
  });
  return {of.document, of.path + (plain ? "." + name : "[" + quoted(name) + "]")};
}

// "the number 7", "an array": what was found instead.
std::string described(const Json& value) {
  if (value.is_string()) return quoted(value.get_ref<const std::string&>());
  if (value.is_number()) return "the number " + value.dump();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_null()) return "null";
  return value.is_array() ? "an array" : "an object";
}

// A whole number from 0 to `most`, in any spelling that JSON has for it.
std::optional<std::uint64_t> whole_number(const Json& value, std::uint64_t most) {
  if (value.is_number_integer()) {
    const bool negative = !value.is_number_unsigned() && value.get<std::int64_t>() < 0;
    const auto number = value.get<std::uint64_t>();
    return !negative && number <= most ? std::optional(number) : std::nullopt;
  }
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (!(number >= 0) || std::trunc(number) != number || number > static_cast<double>(most)) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(number);
}

void read_lease(const Json& value, const Location& location, PluginPolicy& policy) {
  std::optional<LeaseChoice> choice;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    choice = parse_lease_choice(text);
    // "green:016" is a lease for the command line; a file has one spelling for each.
    if (choice && (to_string(*choice) != text || choice->multiprocessors > most_multiprocessors)) {
      choice.reset();
    }
  }
  if (!choice) {
    location.refuse(described(value) +
                    " is not a lease; allowed are \"auto\", \"shared\", \"private\", \"green\" and "
                    "\"green:N\", where N is a number of multiprocessors from 1");
  }
  policy.lease = choice;
}

void read_placement(const Json& value, const Location& location, PluginPolicy& policy) {
  if (value.is_string()) {
    const auto rule = parse_placement(value.get_ref<const std::string&>());
    if (rule && rule->rule != PlacementRule::fixed) {
      policy.placement = rule;
      return;
    }
  } else if (const auto device = whole_number(value, largest_device)) {
    policy.placement = Placement(static_cast<int>(*device));
    return;
  }
  location.refuse(
      described(value) +
      " is not a placement; allowed are \"round-robin\", \"most-free-memory\" and a device's "
      "number from 0 to " +
      std::to_string(largest_device));
}

template <std::optional<std::uint64_t> DriverLimits::*limit>
void read_limit(const Json& value, const Location& location, DriverLimits& limits) {
  limits.*limit = whole_number(value, largest_budget);
  if (!(limits.*limit)) {
    location.refuse(described(value) +
                    " is no limit; allowed is a whole number from 0 (no limit) to " +
                    std::to_string(largest_budget));
  }
}

template <std::optional<std::uint64_t> PluginPolicy::*budget>
void read_budget(const Json& value, const Location& location, PluginPolicy& policy) {
  policy.*budget = whole_number(value, largest_budget);
  if (!(policy.*budget)) {
    location.refuse(described(value) +
                    " is not a memory budget; allowed is a whole number of bytes from "
                    "0 (no limit) to " +
                    std::to_string(largest_budget));
  }
}

// Calls the reader of each member. `readers` is a table of names and what reads them.
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

using LimitReader = void (*)(const Json&, const Location&, DriverLimits&);
constexpr std::array<std::pair<const char*, LimitReader>, 6> limit_members{
    {{"pinned_memory", read_limit<&DriverLimits::pinned_memory>},
     {"streams", read_limit<&DriverLimits::streams>},
     {"events", read_limit<&DriverLimits::events>},
     {"graphs", read_limit<&DriverLimits::graphs>},
     {"modules", read_limit<&DriverLimits::modules>},
     {"contexts", read_limit<&DriverLimits::contexts>}}};

void read_limits(const Json& value, const Location& location, PluginPolicy& policy) {
  read_members(value, location, limit_members, policy.driver_limits);
}

using PluginReader = void (*)(const Json&, const Location&, PluginPolicy&);
constexpr std::array<std::pair<const char*, PluginReader>, 5> plugin_members{
    {{"lease", read_lease},
     {"placement", read_placement},
     {"memory_budget", read_budget<&PluginPolicy::memory_budget>},
     {"driver_memory_budget", read_budget<&PluginPolicy::driver_memory_budget>},
     {"driver_limits", read_limits}}};

void read_schema(const Json& value, const Location& location, Policy&) {
  if (value != schema_name) {
    location.refuse(described(value) + " is not what this version reads; it reads \"" +
                    schema_name + "\"");
  }
}

void read_for_all(const Json& value, const Location& location, Policy& policy) {
  read_members(value, location, plugin_members, policy.for_all);
}

void read_by_id(const Json& value, const Location& location, Policy& policy) {
  if (!value.is_object()) {
    location.refuse(described(value) +
                    " is not allowed here; an object whose members are plug-in ids is");
  }
  for (const auto& item : value.items()) {
    const Location where = member(location, item.key());
    if (!detail::is_reverse_dns(item.key())) {
      where.refuse(quoted(item.key()) +
                   " is not a plug-in id; an id looks like com.example.name and consists of "
                   "letters, digits, '-', '_' and '.'");
    }
    read_members(item.value(), where, plugin_members, policy.by_id[item.key()]);
  }
}

using PolicyReader = void (*)(const Json&, const Location&, Policy&);
constexpr std::array<std::pair<const char*, PolicyReader>, 3> policy_members{
    {{"schema", read_schema}, {"for_all", read_for_all}, {"by_id", read_by_id}}};

// The library takes the last of two members with one name; a person meant one of them.
class DuplicateCheck {
 public:
  explicit DuplicateCheck(std::string document) : document_(std::move(document)) {}

  bool operator()(int /*depth*/, Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
        open_.push_back({open_.empty() ? Location{document_, "$"} : within(), {}, {}});
        break;
      case Json::parse_event_t::object_end:
        open_.pop_back();
        break;
      case Json::parse_event_t::key:
        open_.back().key = parsed.get<std::string>();
        if (!open_.back().seen.insert(open_.back().key).second) {
          within().refuse("the member stands here twice; one of them has to go");
        }
        break;
      default:
        break;
    }
    return true;
  }

 private:
  struct Object {
    Location location;
    std::string key;  // of the member that is being read
    std::set<std::string> seen;
  };
  Location within() const { return member(open_.back().location, open_.back().key); }

  std::string document_;
  std::vector<Object> open_;
};

Json parse_json(std::string_view text, const std::string& document) {
  try {
    return Json::parse(text, DuplicateCheck(document));
  } catch (const Json::exception& error) {
    // Without the library's own "[json.exception.parse_error.101] ".
    const std::string what = error.what();
    const std::size_t end = what.find("] ");
    Location{document, ""}.refuse("is not JSON: " +
                                  (end == std::string::npos ? what : what.substr(end + 2)));
  }
}

}  // namespace

Policy parse_policy(std::string_view text, const std::string& name) {
  const std::string document = "policy \"" + name + "\"";
  const Json json = parse_json(text, document);
  const Location root{document, "$"};
  Policy policy;
  // First: a document of another version may have other members.
  if (json.is_object() && !json.contains("schema")) {
    root.refuse(std::string("the member \"schema\" is missing; it has to be \"") + schema_name +
                "\"");
  }
  if (json.is_object()) read_schema(json.at("schema"), member(root, "schema"), policy);
  read_members(json, root, policy_members, policy);
  return policy;
}

Policy read_policy(const std::filesystem::path& path) {
  const Location file{"policy \"" + path.string() + "\"", ""};
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::not_found) file.refuse("there is no such file");
  if (kind == std::filesystem::file_type::directory) file.refuse("is a folder, not a file");
  std::ifstream stream(path, std::ios::binary);
  std::string text(largest_file + 1, '\0');
  if (!stream.read(text.data(), static_cast<std::streamsize>(text.size())) &&
      (!stream.eof() || stream.bad())) {
    file.refuse("the file cannot be read");
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > largest_file) {
    file.refuse("the file is larger than " + std::to_string(largest_file) + " bytes; no policy is");
  }
  return parse_policy(text, path.string());
}

}  // namespace ctxbroker
