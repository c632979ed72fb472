// SPDX-License-Identifier: Apache-2.0
// What scans write and read: manifests, the cache, versions.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "ctxbroker/manifest.hpp"
#include "json_schema.hpp"
#include "plugin/description_json.hpp"
#include "scan/choices.hpp"
#include "scan/protocol.hpp"
#include "scan/scan.hpp"
#include "scan/scan_cache.hpp"
#include "schemas.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

PluginDescription everything() {
  PluginDescription plugin;
  plugin.id = "com.example.every-thing";
  plugin.name = "Every \"thing\"\n\xc3\xa4";
  plugin.vendor = "Example";
  plugin.version = "1.2.3";
  plugin.description = "All there is.";
  plugin.short_name = "every-thing";
  plugin.features = {"a", "b"};
  plugin.media = Media::audio;
  plugin.cuda_use = CudaUse::runtime;
  plugin.lease_wish = LeaseKind::green;
  plugin.flags = 0xFF;
  plugin.needs_nvidia_driver = true;
  plugin.min_compute_major = 9;
  plugin.min_compute_minor = 1;
  plugin.modules = {"one", "two"};
  plugin.inputs = {{"in", "In", false, false, 3, 1, 0, -1},
                   {"key", "Key", true, true, 1, 1, 0, -1}};
  plugin.outputs = {{"out", "Out", false, false, 3, 1, 0, 1},
                    {"bins", "Bins", false, false, 0, 0, 64, -1}};
  ParameterDescription gain;
  gain.id = "gain";
  gain.name = "Gain";
  gain.unit = "dB";
  gain.group = "Level";
  gain.minimum = -60.25;
  gain.maximum = 1e30;
  gain.default_value = 0.1;
  gain.skew = 2.5;
  gain.automatable = gain.hidden = gain.advanced = true;
  ParameterDescription mode;
  mode.id = "mode";
  mode.name = "Mode";
  mode.type = ParameterType::choice;
  mode.choices = {"low", "high"};
  mode.maximum = 1;
  ParameterDescription colour;
  colour.id = "colour";
  colour.name = "Colour";
  colour.type = ParameterType::colour;
  colour.maximum = 1;
  colour.default_value = {0, 0.25, 0.5, 1};
  ParameterDescription response;
  response.id = "response";
  response.name = "Response";
  response.type = ParameterType::file;
  response.endings = {".wav"};
  response.default_value = 0;
  plugin.parameters = {gain, mode, colour, response};
  return plugin;
}

TEST(ScanTextTest, DescriptionIsReadBackUnchanged) {
  const std::vector<PluginDescription> before = {everything()};
  const nlohmann::ordered_json written = detail::to_json(before);
  const auto after = detail::read_plugins(written, {"it", "$"}, "/some/library.so");
  EXPECT_EQ(detail::to_json(after).dump(), written.dump());
  ASSERT_EQ(after.size(), 1U);
  EXPECT_EQ(after[0].library_path, "/some/library.so");
  EXPECT_EQ(after[0].short_name, "every-thing");
  EXPECT_TRUE(after[0].needs_nvidia_driver);
  EXPECT_EQ(after[0].outputs[0].in_place, 1);
  EXPECT_EQ(after[0].parameters[2].default_value, everything().parameters[2].default_value);
}

TEST(ScanTextTest, AManifestFitsItsSchema) {
  const auto schema = nlohmann::json::parse(manifest_schema);
  const auto text = to_json(Manifest{"0123abcd", {everything()}});
  EXPECT_TRUE(is_valid(nlohmann::json::parse(text), schema, schema)) << text;
}

// Each member in turn is something else: there is an error with the place, and never a crash.
TEST(ScanTextTest, EachWrongMemberIsAnErrorWithItsPlace) {
  const nlohmann::ordered_json good = detail::to_json({everything()});
  const nlohmann::ordered_json wrong[] = {nullptr,
                                          true,
                                          -1,
                                          1e300,
                                          "\x01",
                                          std::string(5000, 'x'),
                                          nlohmann::ordered_json::array({1}),
                                          nlohmann::ordered_json::object()};
  int refused = 0;
  const nlohmann::ordered_json members = good.flatten();
  for (const auto& [pointer, value] : members.items()) {
    for (const nlohmann::ordered_json& one : wrong) {
      nlohmann::ordered_json changed = good;
      changed[nlohmann::ordered_json::json_pointer(pointer)] = one;
      try {
        static_cast<void>(detail::read_plugins(changed, {"it", "$"}, ""));
      } catch (const ::ctxbroker::json::DocumentError& error) {
        EXPECT_THAT(error.what(), HasSubstr("it: $[0]"));
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 400);
}

detail::CacheEntry entry(LibraryState state) {
  detail::CacheEntry entry;
  entry.stamp = {7, -5, 9};
  entry.state = state;
  entry.strikes = 3;
  entry.reason = "a reason\nof two lines \xff";
  if (state == LibraryState::enabled) entry.plugins = {everything()};
  return entry;
}

TEST(ScanTextTest, CacheIsReadBackUnchanged) {
  const std::string header = "\n{\"schema\":\"ctxbroker.scan_cache/1\"}\n";
  const std::string text = header + detail::cache_line("/a.so", entry(LibraryState::hung)) + "\n" +
                           detail::cache_line("/b.so", entry(LibraryState::crashed)) + header +
                           detail::cache_line("/a.so", entry(LibraryState::enabled));
  const detail::CacheText cache = detail::parse_cache(text);
  EXPECT_EQ(cache.trouble, "");
  EXPECT_EQ(cache.lines, 3U);
  ASSERT_EQ(cache.entries.size(), 2U);
  EXPECT_EQ(cache.entries.at("/a.so").state, LibraryState::enabled) << "the later line";
  EXPECT_EQ(cache.entries.at("/a.so").plugins[0].id, "com.example.every-thing");
  EXPECT_EQ(cache.entries.at("/b.so").strikes, 3U);
  EXPECT_EQ(cache.entries.at("/b.so").stamp, (detail::LibraryStamp{7, -5, 9}));
}

TEST(ScanTextTest, ADamagedLineCostsItself) {
  const std::string header = "{\"schema\":\"ctxbroker.scan_cache/1\"}\n";
  const std::string good = detail::cache_line("/a.so", entry(LibraryState::enabled));
  for (const std::string& line :
       {std::string("x"), std::string("{}"), std::string(100000, '['), good.substr(0, 100),
        R"({"x": )" + std::string(100, '[') + std::string(100, ']') + ", " +
            detail::cache_line("/b.so", entry(LibraryState::enabled)).substr(1),
        std::string(R"({"file": "/b.so", "size": "7"})"),
        std::string(R"({"file": "/b.so", "size": 1, "modified": 1, "changed": 1, "state": "missing",
                        "source": "scan"})")}) {
    std::string one = line;
    std::erase(one, '\n');
    const detail::CacheText cache = detail::parse_cache(header + one + "\n" + good);
    EXPECT_EQ(cache.entries.size(), 1U) << one.substr(0, 100);
    EXPECT_THAT(cache.trouble, HasSubstr("line 2"));
  }
  const detail::CacheText foreign = detail::parse_cache(good + header);
  EXPECT_THAT(foreign.entries, testing::IsEmpty());
  EXPECT_FALSE(foreign.has_header);
}

TEST(ScanTextTest, VersionsAreInOrder) {
  const std::vector<std::string> ascending = {"0.9", "1.0-alpha", "1.0-beta", "1.0", "1.0.1",
                                              "1.2", "1.10",      "1.10a",    "2"};
  for (std::size_t a = 0; a < ascending.size(); ++a) {
    for (std::size_t b = 0; b < ascending.size(); ++b) {
      const int order = detail::compare_versions(ascending[a], ascending[b]);
      EXPECT_EQ(order < 0, a < b) << ascending[a] << " " << ascending[b];
      EXPECT_EQ(order == 0, a == b) << ascending[a] << " " << ascending[b];
    }
  }
  EXPECT_EQ(detail::compare_versions("1.0", "1"), 0);
  EXPECT_EQ(detail::compare_versions("1.01", "1.1"), 0);
  EXPECT_NE(detail::compare_versions("100000000000000000000000", "99999999999999999999999"), 0);
}

TEST(ScanTextTest, AnAnswerIsAboutTheFileThatWasAskedFor) {
  const detail::Examination said{detail::Outcome::described, "[] \xff"};
  const std::string line = detail::reply_line("/a.so", said);
  EXPECT_TRUE(detail::parse_reply(line, "/a.so"));
  EXPECT_FALSE(detail::parse_reply(line, "/b.so"));
  const std::string deep = ", \"x\": " + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_FALSE(detail::parse_reply(line.substr(0, line.rfind('}')) + deep, "/a.so"));
  const std::string request = detail::request_line({"/a.so", std::chrono::seconds(1)});
  EXPECT_TRUE(detail::parse_request(request));
  EXPECT_FALSE(detail::parse_request(request.substr(0, request.rfind('}')) + deep));
  for (const char* other : {"", "garbage", "[]", "null", "{}", R"({"file": "/a.so"})",
                            R"({"file": "/a.so", "outcome": "enabled", "text": ""})"}) {
    EXPECT_FALSE(detail::parse_reply(other, "/a.so")) << other;
    EXPECT_FALSE(detail::parse_request(other)) << other;
    EXPECT_FALSE(detail::is_ready_line(other)) << other;
  }
}

}  // namespace
}  // namespace ctxbroker
