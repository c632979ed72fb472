// SPDX-License-Identifier: Apache-2.0
// Presets as JSON: what is written is read again, and what is no whole preset is refused.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "ctxbroker/error.hpp"
#include "ctxbroker/preset.hpp"
#include "json_schema.hpp"
#include "plugin/base64.hpp"
#include "schemas.hpp"

namespace ctxbroker {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

Preset sample_preset() {
  Preset preset;
  preset.plugin = "com.example.grade";
  preset.version = "1.2.0";
  preset.values = {{"on", true},
                   {"stops", -0.1},
                   {"mode", std::string("low-pass")},
                   {"title", std::string("\"Grün\"\n")},
                   {"gain", std::vector<double>{1, 0.9, 1e-9, 1}}};
  preset.state = {std::byte{0}, std::byte{255}, std::byte{7}, std::byte{128}};
  return preset;
}

std::string preset_error(const std::function<Preset()>& work) {
  try {
    static_cast<void>(work());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::preset);
    return error.what();
  }
  return {};
}

bool fits_schema(const std::string& text) {
  const json schema = json::parse(preset_schema);
  return is_valid(json::parse(text), schema, schema);
}

// A host that does not have the plug-in writes all of it back.
TEST(PresetJsonTest, PresetWithoutItsPluginIsWrittenBackUnchanged) {
  Preset preset = sample_preset();
  for (int value = 0; value < 256; ++value) preset.state->push_back(std::byte(value));
  preset.values["tiny"] = 4.9406564584124654e-324;
  preset.values["third"] = 1.0 / 3;
  const std::string text = to_json(preset);
  EXPECT_EQ(to_json(parse_preset(text)), text);

  // Also what a later version has added.
  json later = json::parse(text);
  later["colour"] = {{"of", {"the", "label", 0.1, nullptr}}};
  const Preset read = parse_preset(later.dump());
  EXPECT_EQ(json::parse(to_json(read)), later);
  EXPECT_EQ(read.state, preset.state);
  EXPECT_TRUE(fits_schema(to_json(read)));
}

TEST(PresetJsonTest, PresetIsReadBackUnchanged) {
  const Preset before = sample_preset();
  const std::string text = to_json(before);
  EXPECT_TRUE(fits_schema(text)) << text;
  const Preset after = parse_preset(text);
  EXPECT_EQ(after.plugin, before.plugin);
  EXPECT_EQ(after.version, before.version);
  EXPECT_EQ(after.values, before.values);
  EXPECT_EQ(after.state, before.state);
  Preset stateless = before;
  stateless.state.reset();
  EXPECT_EQ(parse_preset(to_json(stateless)).state, std::nullopt);
  stateless.state.emplace();
  EXPECT_EQ(parse_preset(to_json(stateless)).state, stateless.state) << "empty is not none";
}

// A member that could not be read back as JSON becomes a text.
TEST(PresetJsonTest, AMemberOfTheHostBeyondTheLimitsIsWrittenAsAText) {
  Preset preset = sample_preset();
  preset.other["good"] = std::string(90, '[') + std::string(90, ']');
  preset.other["deep"] = std::string(101, '[') + std::string(101, ']');
  preset.other["endless"] = std::string(1'000'000, '[');
  const json written = json::parse(to_json(preset));
  EXPECT_TRUE(written["good"].is_array()) << "the control";
  EXPECT_EQ(written["deep"], preset.other["deep"]);
  EXPECT_EQ(written["endless"], preset.other["endless"]);
}

TEST(PresetJsonTest, MembersOfALaterVersionAreNoError) {
  json later = json::parse(to_json(sample_preset()));
  later["author"] = {{"name", "somebody"}};
  EXPECT_EQ(parse_preset(later.dump()).values, sample_preset().values);
  EXPECT_TRUE(fits_schema(later.dump()));
}

// A preset in which one thing is wrong, and what is said about it.
struct PresetMistake {
  const char* name;
  std::function<void(json&)> make;
  const char* says;
};

TEST(PresetJsonTest, MistakesAreRefusedByReaderAndSchema) {
  const std::vector<PresetMistake> mistakes{
      {"no schema", [](json& j) { j.erase("schema"); }, "$: the member \"schema\" is missing"},
      {"other schema", [](json& j) { j["schema"] = "ctxbroker.preset/2"; },
       "$.schema: \"ctxbroker.preset/2\" is not what this version reads"},
      {"a policy", [](json& j) { j["schema"] = "ctxbroker.policy/1"; }, "$.schema"},
      {"no plugin", [](json& j) { j.erase("plugin"); }, "\"plugin\" is missing"},
      {"plugin's name", [](json& j) { j["plugin"] = "Blur"; }, "com.example.name"},
      {"plugin a number", [](json& j) { j["plugin"] = 7; }, "$.plugin: the number 7"},
      {"no version", [](json& j) { j.erase("version"); }, "\"version\" is missing"},
      {"empty version", [](json& j) { j["version"] = ""; }, "$.version"},
      {"no values", [](json& j) { j.erase("values"); }, "\"values\" is missing"},
      {"values an array", [](json& j) { j["values"] = json::array(); }, "$.values: an array"},
      {"null", [](json& j) { j["values"]["stops"] = nullptr; }, "$.values.stops: null is no value"},
      {"object", [](json& j) { j["values"]["m00"] = json::object(); }, "$.values[\"m00\"]"},
      {"texts in an array",
       [](json& j) {
         j["values"]["gain"] = {1, "2"};
       },
       "$.values.gain: \"2\""},
      {"state a number", [](json& j) { j["state"] = 4; }, "$.state"},
      {"state cut off", [](json& j) { j["state"] = "AP8HgA"; }, "$.state: this is not"},
      {"state with a blank", [](json& j) { j["state"] = "AP 8"; }, "base64"},
      {"an array", [](json& j) { j = json::array({1}); }, "$: an array is not allowed here"},
  };
  for (const PresetMistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.name);
    json document = json::parse(to_json(sample_preset()));
    mistake.make(document);
    EXPECT_THAT(preset_error([&] { return parse_preset(document.dump(), "soft.json"); }),
                AllOf(HasSubstr("preset \"soft.json\": $"), HasSubstr(mistake.says)));
    EXPECT_FALSE(fits_schema(document.dump()));
  }
}

TEST(PresetJsonTest, AHalfWrittenFileIsRefusedWhereverItEnds) {
  const std::string whole = to_json(sample_preset());
  for (std::size_t end = 0; end < whole.size() - 2; ++end) {
    EXPECT_THAT(preset_error([&] { return parse_preset(whole.substr(0, end)); }),
                HasSubstr("is not JSON"))
        << end;
  }
  EXPECT_THAT(preset_error([&] { return parse_preset(whole + "}"); }), HasSubstr("is not JSON"));
  EXPECT_THAT(
      preset_error([&] {
        return parse_preset(R"({"schema": "ctxbroker.preset/1", "values": {"a": 1, "a": 2}})");
      }),
      HasSubstr("$.values.a: the member stands here twice"));
}

TEST(PresetJsonTest, FilesAreWrittenAndRead) {
  const auto path = std::filesystem::temp_directory_path() /
                    ("preset_json_test_" + std::to_string(::getpid()) + ".json");
  write_preset(sample_preset(), path);
  EXPECT_EQ(read_preset(path).values, sample_preset().values);
  std::ofstream(path) << "{";
  EXPECT_THAT(preset_error([&] { return read_preset(path); }),
              AllOf(HasSubstr(path.string()), HasSubstr("is not JSON")));
  std::filesystem::remove(path);
  EXPECT_THAT(preset_error([&] { return read_preset(path); }), HasSubstr("there is no such file"));
  try {
    write_preset(sample_preset(), "/no/such/folder/soft.json");
    ADD_FAILURE() << "written";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::output_file);
  }
}

TEST(Base64Test, EncodingMatchesTheStandardsExamples) {
  const std::vector<std::pair<std::string, std::string>> examples{{"", ""},
                                                                  {"f", "Zg=="},
                                                                  {"fo", "Zm8="},
                                                                  {"foo", "Zm9v"},
                                                                  {"foob", "Zm9vYg=="},
                                                                  {"fooba", "Zm9vYmE="},
                                                                  {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, text] : examples) {
    const auto* first = reinterpret_cast<const std::byte*>(plain.data());
    const std::vector<std::byte> bytes(first, first + plain.size());
    EXPECT_EQ(detail::to_base64(bytes), text);
    EXPECT_EQ(detail::from_base64(text), bytes);
  }
  for (const char* bad :
       {"Z", "Zg", "Zg=", "Zg==Zg==", "=Zg=", "Z===", "====", "Zh==", "Zm9=", "Zm9-", "Zm9v\n"}) {
    EXPECT_EQ(detail::from_base64(bad), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace ctxbroker
