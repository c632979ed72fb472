// SPDX-License-Identifier: Apache-2.0
// Policies from text and files, and the schema that describes them.
#include "ctxbroker/policy.hpp"

#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ctxbroker/error.hpp"
#include "json_schema.hpp"
#include "schemas.hpp"

namespace ctxbroker {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::policy) << error.what();
    return error.what();
  }
  return {};
}

// A document with this text behind its schema's name.
std::string with(const std::string& members) {
  return R"({"schema": "ctxbroker.policy/1")" + (members.empty() ? "" : ", " + members) + "}";
}
std::string for_all(const std::string& members) {
  return with(R"("for_all": {)" + members + "}");
}
std::string by_id(const std::string& id) {
  return with(R"("by_id": {")" + id + R"(": {}})");
}

TEST(PolicyTest, EveryMemberIsRead) {
  const Policy policy = parse_policy(R"({
    "schema": "ctxbroker.policy/1",
    "for_all": {"lease": "auto", "placement": "round-robin", "memory_budget": 0,
                "memory": "pool"},
    "by_id": {
      "com.example.blur": {"lease": "green:16", "placement": 3, "memory_budget": 1073741824},
      "com.example.gain": {"lease": "private", "placement": "most-free-memory",
                           "driver_memory_budget": 1048576, "memory": "driver",
                           "pinned_ahead": 4194304,
                           "realtime": "refuse",
                           "driver_limits": {"pinned_memory": 1, "streams": 2, "events": 3,
                                             "graphs": 4, "modules": 5, "contexts": 0}},
      "org.never-loaded.x_1": {}
    }
  })",
                                     "test");
  EXPECT_EQ(policy.for_all.lease, LeaseChoice());
  EXPECT_EQ(policy.for_all.placement, Placement(PlacementRule::round_robin));
  EXPECT_EQ(policy.for_all.memory_budget, 0U);
  EXPECT_EQ(policy.for_all.memory, MemorySource::pool);
  ASSERT_EQ(policy.by_id.size(), 3U);
  const PluginPolicy& blur = policy.by_id.at("com.example.blur");
  EXPECT_EQ(blur.lease, LeaseChoice(LeaseKind::green, 16));
  EXPECT_EQ(blur.placement, Placement(3));
  EXPECT_EQ(blur.memory_budget, std::uint64_t{1} << 30U);
  const PluginPolicy& gain = policy.by_id.at("com.example.gain");
  EXPECT_EQ(gain.lease, LeaseChoice(LeaseKind::private_own));
  EXPECT_EQ(gain.placement, Placement(PlacementRule::most_free_memory));
  EXPECT_FALSE(gain.memory_budget);
  EXPECT_EQ(gain.driver_memory_budget, std::uint64_t{1} << 20U);
  EXPECT_FALSE(blur.driver_memory_budget);
  EXPECT_EQ(gain.memory, MemorySource::driver);
  EXPECT_FALSE(blur.memory);
  EXPECT_EQ(gain.pinned_ahead, std::uint64_t{4} << 20U);
  EXPECT_FALSE(blur.pinned_ahead);
  EXPECT_EQ(gain.realtime, RealtimePolicy::refuse);
  EXPECT_FALSE(blur.realtime);
  EXPECT_EQ(gain.driver_limits.pinned_memory, 1U);
  EXPECT_EQ(gain.driver_limits.streams, 2U);
  EXPECT_EQ(gain.driver_limits.events, 3U);
  EXPECT_EQ(gain.driver_limits.graphs, 4U);
  EXPECT_EQ(gain.driver_limits.modules, 5U);
  EXPECT_EQ(gain.driver_limits.contexts, 0U);
  EXPECT_FALSE(blur.driver_limits.contexts);
  const PluginPolicy& other = policy.by_id.at("org.never-loaded.x_1");
  EXPECT_FALSE(other.lease || other.placement || other.memory_budget);
}

TEST(PolicyTest, PatternsForLibrariesAreReadInTheirOrder) {
  const Policy policy = parse_policy(R"({
    "schema": "ctxbroker.policy/1",
    "by_id": {"torch": {"lease": "private"}},
    "libraries": [{"match": "*/torch/lib/*.so*", "tenant": "torch"},
                  {"tenant": "com.example.blur", "match": "*/libblur.so"},
                  {"match": "*", "tenant": "*"}]
  })",
                                     "test");
  ASSERT_EQ(policy.libraries.size(), 3U);
  EXPECT_EQ(policy.libraries[0].match, "*/torch/lib/*.so*");
  EXPECT_EQ(policy.libraries[0].tenant, "torch");
  EXPECT_EQ(policy.libraries[1].match, "*/libblur.so");
  EXPECT_EQ(policy.libraries[1].tenant, "com.example.blur");
  EXPECT_EQ(policy.libraries[2].tenant, "*");
  EXPECT_EQ(policy.by_id.at("torch").lease, LeaseChoice(LeaseKind::private_own));
}

TEST(PolicyTest, EmptyPolicyDecidesNothing) {
  const Policy policy = parse_policy(with(""), "test");
  EXPECT_FALSE(policy.for_all.lease || policy.for_all.placement || policy.for_all.memory_budget);
  EXPECT_TRUE(policy.by_id.empty());
}

// ---- The reader and the schema agree --------------------------------------------------------

struct Document {
  const char* name;
  std::string text;
  std::vector<const char*> said;  // parts of the error; empty: accepted
};

std::ostream& operator<<(std::ostream& stream, const Document& document) {
  return stream << document.name;
}

class PolicyDocuments : public testing::TestWithParam<Document> {};

TEST_P(PolicyDocuments, DocumentIsJudgedAlikeByReaderAndSchema) {
  const Document& document = GetParam();
  const std::string error = error_of([&] { return parse_policy(document.text, "p.json"); });
  EXPECT_EQ(error.empty(), document.said.empty()) << error;
  if (!error.empty()) {
    EXPECT_THAT(error, HasSubstr("policy \"p.json\": $"));
    EXPECT_THAT(error, Not(HasSubstr("\n")));
  }
  for (const char* part : document.said) EXPECT_THAT(error, HasSubstr(part));
  const json schema = json::parse(policy_schema);
  EXPECT_EQ(is_valid(json::parse(document.text), schema, schema), document.said.empty());
}

const std::vector<Document> documents{
    {"empty", with(""), {}},
    {"for_all_empty", with(R"("for_all": {}, "by_id": {})"), {}},
    {"lease_auto", for_all(R"("lease": "auto")"), {}},
    {"lease_shared", for_all(R"("lease": "shared")"), {}},
    {"lease_private", for_all(R"("lease": "private")"), {}},
    {"lease_green", for_all(R"("lease": "green")"), {}},
    {"lease_green_1", for_all(R"("lease": "green:1")"), {}},
    {"lease_green_999999999", for_all(R"("lease": "green:999999999")"), {}},
    {"device_0", for_all(R"("placement": 0)"), {}},
    {"device_minus_0", for_all(R"("placement": -0)"), {}},
    {"device_1023", for_all(R"("placement": 1023)"), {}},
    {"device_float", for_all(R"("placement": 1.0)"), {}},
    {"round_robin", for_all(R"("placement": "round-robin")"), {}},
    {"most_free_memory", for_all(R"("placement": "most-free-memory")"), {}},
    {"budget_0", for_all(R"("memory_budget": 0)"), {}},
    {"budget_exponent", for_all(R"("memory_budget": 1e9)"), {}},
    {"budget_largest", for_all(R"("memory_budget": 9007199254740991)"), {}},
    {"realtime_count", for_all(R"("realtime": "count")"), {}},
    {"realtime_refuse", for_all(R"("realtime": "refuse")"), {}},
    {"limits_empty", for_all(R"("driver_limits": {})"), {}},
    {"limit_0", for_all(R"("driver_limits": {"streams": 0})"), {}},
    {"limit_largest", for_all(R"("driver_limits": {"events": 9007199254740991})"), {}},
    {"driver_budget", for_all(R"("driver_memory_budget": 9007199254740991)"), {}},
    {"memory_driver", for_all(R"("memory": "driver")"), {}},
    {"memory_pool", for_all(R"("memory": "pool")"), {}},
    {"id", by_id("com.example.blur"), {}},
    {"id_of_two_parts", by_id("example.Blur-2_b"), {}},

    {"no_object", "[]", {"$: an array", "\"schema\" is \"ctxbroker.policy/1\""}},
    {"null", "null", {"$: null"}},
    {"schema_missing", "{}", {"\"schema\" is missing", "ctxbroker.policy/1"}},
    {"schema_of_another_version",
     R"({"schema": "ctxbroker.policy/2", "more": 1})",
     {"$.schema: \"ctxbroker.policy/2\"", "reads \"ctxbroker.policy/1\""}},
    {"schema_number", R"({"schema": 1})", {"$.schema: the number 1"}},
    {"unknown_member",
     with(R"("plugins": {})"),
     {"$.plugins: there is no such member", "\"schema\", \"for_all\", \"by_id\""}},
    {"unknown_plugin_member",
     with(R"("by_id": {"com.example.blur": {"leese": "green"}})"),
     {R"($.by_id["com.example.blur"].leese: there is no such member)",
      "\"lease\", \"placement\", \"memory_budget\", \"driver_memory_budget\""}},
    {"odd_member", with("\"a\\nb\": {}"), {R"($["a\nb"])"}},
    {"for_all_array", with(R"("for_all": [])"), {"$.for_all: an array"}},
    {"for_all_null", with(R"("for_all": null)"), {"$.for_all: null"}},
    {"by_id_string", with(R"("by_id": "com.example.blur")"), {"$.by_id: \"com.example.blur\""}},
    {"libraries_object", with(R"("libraries": {})"), {"$.libraries: an object", "an array"}},
    {"library_string", with(R"("libraries": ["a.so"])"), {"$.libraries[0]: \"a.so\""}},
    {"library_without_tenant",
     with(R"("libraries": [{"match": "*"}])"),
     {"$.libraries[0]", "\"tenant\""}},
    {"library_without_match",
     with(R"("libraries": [{"tenant": "blur"}])"),
     {"$.libraries[0]", "\"match\""}},
    {"library_empty_match",
     with(R"("libraries": [{"match": "", "tenant": "blur"}])"),
     {"$.libraries[0].match", "is no pattern"}},
    {"library_bad_tenant",
     with(R"("libraries": [{"match": "*", "tenant": "b lur"}])"),
     {"$.libraries[0].tenant", "is no tenant's name", "com.example.name"}},
    {"library_unknown_member",
     with(R"("libraries": [{"match": "*", "tenant": "blur", "lease": "green"}])"),
     {"$.libraries[0].lease: there is no such member"}},
    {"plugin_string",
     with(R"("by_id": {"com.example.blur": "green"})"),
     {R"($.by_id["com.example.blur"]: "green")"}},
    {"id_bad",
     by_id("bl/ur"),
     {R"("bl/ur" is neither a plug-in id nor a tenant's name)", "com.example.name"}},
    {"id_empty", by_id(""), {R"($.by_id[""])"}},
    {"id_empty_part", by_id("com..blur"), {"neither a plug-in id"}},
    {"id_dot_at_end", by_id("com.blur."), {"neither a plug-in id"}},
    {"id_with_blank", by_id("com.my blur"), {"neither a plug-in id"}},
    {"id_with_line_end", by_id("com.blur\\n"), {"neither a plug-in id"}},
    {"lease_unknown",
     for_all(R"("lease": "greenish")"),
     {"$.for_all.lease: \"greenish\" is not a lease",
      "\"auto\", \"shared\", \"private\", \"green\""}},
    {"lease_green_0", for_all(R"("lease": "green:0")"), {"\"green:0\"", "from 1"}},
    {"lease_green_nothing", for_all(R"("lease": "green:")"), {"\"green:\""}},
    {"lease_green_leading_0", for_all(R"("lease": "green:016")"), {"\"green:016\""}},
    {"lease_green_too_many", for_all(R"("lease": "green:1000000000")"), {"not a lease"}},
    {"lease_green_minus", for_all(R"("lease": "green:-1")"), {"not a lease"}},
    {"lease_worker", for_all(R"("lease": "worker")"), {"\"worker\" is not a lease"}},
    {"lease_capital", for_all(R"("lease": "Green")"), {"\"Green\" is not a lease"}},
    {"lease_line_end", for_all("\"lease\": \"green\\n\""), {"not a lease"}},
    {"lease_number", for_all(R"("lease": 16)"), {"the number 16 is not a lease"}},
    {"lease_null", for_all(R"("lease": null)"), {"null is not a lease"}},
    {"device_minus_1", for_all(R"("placement": -1)"), {"$.for_all.placement: the number -1"}},
    {"device_1024", for_all(R"("placement": 1024)"), {"0 to 1023"}},
    {"device_half", for_all(R"("placement": 0.5)"), {"the number 0.5"}},
    {"device_text", for_all(R"("placement": "1")"), {"\"1\" is not a placement"}},
    {"placement_unknown",
     for_all(R"("placement": "random")"),
     {"\"random\"", "\"round-robin\", \"most-free-memory\""}},
    {"placement_true", for_all(R"("placement": true)"), {"true is not a placement"}},
    {"pinned_ahead_minus", for_all(R"("pinned_ahead": -1)"), {"$.for_all.pinned_ahead"}},
    {"pinned_ahead_text",
     for_all(R"("pinned_ahead": "1 MiB")"),
     {"\"1 MiB\" is not a size of pinned memory"}},
    {"budget_minus", for_all(R"("memory_budget": -1)"), {"$.for_all.memory_budget"}},
    {"budget_half", for_all(R"("memory_budget": 0.5)"), {"a whole number of bytes"}},
    {"budget_text", for_all(R"("memory_budget": "1 GiB")"), {"\"1 GiB\" is not a memory budget"}},
    {"budget_too_large", for_all(R"("memory_budget": 9007199254740992)"), {"9007199254740991"}},
    {"memory_unknown",
     for_all(R"("memory": "arena")"),
     {"$.for_all.memory: \"arena\" is not a source of memory", "\"driver\"", "\"pool\""}},
    {"memory_auto", for_all(R"("memory": "auto")"), {"\"auto\" is not a source of memory"}},
    {"memory_capital", for_all(R"("memory": "Pool")"), {"\"Pool\" is not a source of memory"}},
    {"memory_number", for_all(R"("memory": 2)"), {"the number 2 is not a source of memory"}},
    {"memory_null", for_all(R"("memory": null)"), {"null is not a source of memory"}},
    {"realtime_unknown",
     for_all(R"("realtime": "stop")"),
     {"$.for_all.realtime: \"stop\" is not a choice", "\"count\" and \"refuse\""}},
    {"realtime_number", for_all(R"("realtime": 1)"), {"the number 1 is not a choice"}},
    {"limits_number",
     for_all(R"("driver_limits": 1)"),
     {"$.for_all.driver_limits: the number 1", "\"pinned_memory\", \"streams\""}},
    {"limits_unknown",
     for_all(R"("driver_limits": {"threads": 1})"),
     {"$.for_all.driver_limits.threads: there is no such member", "\"contexts\""}},
    {"limit_minus",
     for_all(R"("driver_limits": {"graphs": -1})"),
     {"$.for_all.driver_limits.graphs: the number -1 is no limit"}},
    {"limit_half", for_all(R"("driver_limits": {"modules": 0.5})"), {"a whole number"}},
    {"limit_text", for_all(R"("driver_limits": {"contexts": "2"})"), {"\"2\" is no limit"}},
    {"limit_too_large",
     for_all(R"("driver_limits": {"pinned_memory": 9007199254740992})"),
     {"9007199254740991"}},
    {"driver_budget_minus",
     for_all(R"("driver_memory_budget": -1)"),
     {"$.for_all.driver_memory_budget: the number -1 is not a memory budget"}},
    {"budget_far_too_large", for_all(R"("memory_budget": 1e300)"), {"not a memory budget"}},
};

INSTANTIATE_TEST_SUITE_P(All, PolicyDocuments, testing::ValuesIn(documents));

// ---- What no schema sees ---------------------------------------------------------------------

TEST(PolicyTest, AMemberThatStandsTwiceIsAnError) {
  EXPECT_THAT(error_of([] { return parse_policy(with(R"("schema": "ctxbroker.policy/1")"), "p"); }),
              HasSubstr("$.schema: the member stands here twice"));
  EXPECT_THAT(
      error_of([] { return parse_policy(for_all(R"("lease": "green", "lease": "green")"), "p"); }),
      HasSubstr("$.for_all.lease: the member stands here twice"));
  EXPECT_THAT(error_of([] {
                return parse_policy(with(R"("by_id": {"a.b": {"lease": "green"}, "a.b": {}})"),
                                    "p");
              }),
              HasSubstr(R"($.by_id["a.b"]: the member stands here twice)"));
  EXPECT_EQ(error_of([] {
              return parse_policy(
                  with(R"("by_id": {"a.b": {"lease": "green"}, "a.c": {"lease": "green"}})"), "p");
            }),
            "")
      << "one name in two objects is none";
}

TEST(PolicyTest, InvalidJsonIsRefusedWithItsPlace) {
  for (const char* text : {"", " ", "{", "{]", "schema: ctxbroker.policy/1", "{\"a\": 1,}", "{} {}",
                           "{\"schema\": \"\xff\"}", "// comment\n{}"}) {
    EXPECT_THAT(error_of([&] { return parse_policy(text, "p.json"); }),
                AllOf(HasSubstr("policy \"p.json\": is not JSON: parse error at line "),
                      Not(HasSubstr("json.exception"))))
        << text;
  }
  // Deep nesting ends in an error, not in the stack's end.
  EXPECT_THAT(error_of([] { return parse_policy(std::string(500'000, '['), "p"); }),
              HasSubstr("the limit json_nesting"));
}

class PolicyFileTest : public testing::Test {
 public:
  ~PolicyFileTest() override { std::filesystem::remove_all(folder_); }

 protected:
  PolicyFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "ctxb_policy_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }

  std::filesystem::path file(const std::string& text) const {
    auto path = folder_ / "policy.json";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::filesystem::path folder_;
};

TEST_F(PolicyFileTest, PolicyFileIsReadAndNamedInErrors) {
  EXPECT_EQ(read_policy(file(for_all(R"("lease": "shared")"))).for_all.lease,
            LeaseChoice(LeaseKind::shared));
  EXPECT_THAT(error_of([&] { return read_policy(file(for_all(R"("lease": "")"))); }),
              AllOf(HasSubstr((folder_ / "policy.json").string()), HasSubstr("$.for_all.lease")));
}

TEST_F(PolicyFileTest, UnreadablePolicyFileIsRefusedWithTheReason) {
  EXPECT_THAT(error_of([&] { return read_policy(folder_ / "missing.json"); }),
              AllOf(HasSubstr("missing.json"), HasSubstr("there is no such file")));
  EXPECT_THAT(error_of([&] { return read_policy(folder_); }), HasSubstr("is a folder"));
  const std::string blanks(std::size_t{1} << 20, ' ');
  EXPECT_THAT(error_of([&] { return read_policy(file(with("") + blanks)); }),
              HasSubstr("the limit policy_file"));
  const std::string largest = with("");
  EXPECT_EQ(error_of([&] { return read_policy(file(largest + blanks.substr(largest.size()))); }),
            "");
}

TEST(MemorySourceTest, SourcesAreParsedAndPrinted) {
  for (const char* text : {"auto", "driver", "pool"}) {
    const auto source = parse_memory_source(text);
    ASSERT_TRUE(source) << text;
    EXPECT_STREQ(to_string(*source), text);
  }
  for (const char* text : {"", "automatic", "Pool", "pool ", "unknown"}) {
    EXPECT_FALSE(parse_memory_source(text)) << text;
  }
  EXPECT_STREQ(to_string(static_cast<MemorySource>(3)), "unknown");
}

TEST(PlacementTest, PlacementsAreParsedAndPrinted) {
  for (const char* text : {"0", "1", "1023", "round-robin", "most-free-memory"}) {
    const auto placement = parse_placement(text);
    ASSERT_TRUE(placement) << text;
    EXPECT_EQ(to_string(*placement), text);
  }
  for (const char* text : {"", "-1", "1024", "1x", "x", "round_robin", "fixed", " 1"}) {
    EXPECT_FALSE(parse_placement(text)) << text;
  }
}

}  // namespace
}  // namespace ctxbroker
