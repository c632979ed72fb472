// SPDX-License-Identifier: Apache-2.0
// What the timeline's file holds, read back.
#include "observe/timeline.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "ctxbroker/error.hpp"
#include "observe/whole_file.hpp"

namespace ctxbroker::detail {
namespace {

using Json = nlohmann::json;

Span span_of(SpanCategory category, std::uint64_t begin, std::uint64_t end, const char* verb,
             const char* subject, std::uint32_t tenant) {
  Span span;
  span.category = category;
  span.begin = begin;
  span.end = end;
  span.verb = verb;
  span.tenant = tenant;
  set_subject(span, subject);
  return span;
}

Json trace(const Recording& recording, const TenantNames& names,
           TimelineSummary* summary = nullptr) {
  std::string text;
  const TimelineSummary got =
      write_trace(recording, names, [&](std::string_view piece) { text += piece; });
  if (summary != nullptr) *summary = got;
  return Json::parse(text);  // throws when it is no JSON
}

std::vector<Json> events(const Json& trace, const std::string& phase) {
  std::vector<Json> found;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

TEST(TraceFileTest, TimesAreMicrosecondsFromTheStart) {
  Recording recording{5'000'000, 7, {{42, "render", {}}}};
  recording.threads[0].spans = {
      span_of(SpanCategory::launch, 5'001'234, 5'001'734, "launch", "rows", 2)};
  recording.threads[0].spans[0].values[0] = 64;
  recording.threads[0].spans[0].values[1] = 256;
  TimelineSummary summary;
  const Json json = trace(recording, {{2, "blur"}}, &summary);
  const std::vector<Json> spans = events(json, "X");
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0], Json::parse(R"({"ph":"X","pid":1,"tid":42,"ts":1.234,"dur":0.5,
      "cat":"launch","name":"launch rows",
      "args":{"tenant":"blur","blocks":64,"threads_per_block":256}})"));
  EXPECT_EQ(json["otherData"]["schema"], "ctxbroker.timeline/1");
  EXPECT_EQ(json["otherData"]["dropped"], 7);
  EXPECT_EQ(json["otherData"]["spans"], 1);
  EXPECT_EQ(summary.dropped, 7u);
  EXPECT_EQ(summary.spans, 1u);
  EXPECT_EQ(summary.threads, 1u);
}

TEST(TraceFileTest, AnyNameGivesValidJson) {
  const char* const names[] = {"quote\" back\\slash", "line\nbreak\ttab\x01", "\xff\xfe no UTF-8",
                               "caf\u00e9 \u4e2d\u6587", ""};
  for (const char* name : names) {
    Recording recording{0, 0, {{1, name, {span_of(SpanCategory::call, 1, 2, "process", name, 3)}}}};
    recording.threads[0].spans.push_back(span_of(SpanCategory::strike, 3, 3, "process", name, 3));
    recording.threads[0].spans.push_back(span_of(SpanCategory::device, 4, 5, "shared", name, 3));
    const Json json = trace(recording, {{3, name}});
    const std::string shown = std::string(name).find('\xff') == 0 ? "\ufffd\ufffd no UTF-8" : name;
    EXPECT_EQ(events(json, "X").at(0)["args"]["tenant"], shown);
    EXPECT_EQ(events(json, "X").at(0)["name"], shown.empty() ? "process" : "process " + shown);
    EXPECT_EQ(events(json, "i").at(0)["s"], "t");
  }
  // A tenant of another broker.
  const Recording other{0, 0, {{1, "t", {span_of(SpanCategory::call, 1, 2, "process", "x", 9)}}}};
  EXPECT_EQ(events(trace(other, {}), "X").at(0)["args"]["tenant"], "tenant 9");
}

TEST(TraceFileTest, DeviceTracksAreGroupedByTenantAndNeverOverlap) {
  Recording recording{0, 0, {{1, "a", {}}, {2, "b", {}}}};
  const auto device = [](std::uint64_t begin, std::uint64_t end, std::uint32_t tenant,
                         std::uint64_t generation) {
    Span span = span_of(SpanCategory::device, begin, end, "private", "blur", tenant);
    span.values[0] = 1;
    span.values[1] = generation;
    return span;
  };
  recording.threads[0].spans = {device(10, 20, 4, 8), device(20, 30, 4, 8), device(5, 9, 6, 9)};
  recording.threads[1].spans = {device(15, 25, 4, 8)};
  const Json json = trace(recording, {{4, "four"}, {6, "six"}});
  std::map<std::string, std::vector<std::pair<double, double>>> tracks;
  std::map<std::string, std::string> names;
  for (const Json& event : events(json, "M")) {
    const std::string key = event["pid"].dump() + "/" + event["tid"].dump();
    if (event["name"] != "process_sort_index") names[key] = event["args"]["name"];
  }
  for (const Json& event : events(json, "X")) {
    const std::string key = event["pid"].dump() + "/" + event["tid"].dump();
    ASSERT_TRUE(names.contains(key)) << key;
    EXPECT_EQ(event["name"], "blur");
    auto& track = tracks[key];
    const double begin = event["ts"], length = event["dur"];
    if (!track.empty()) {
      EXPECT_GE(begin, track.back().second) << key;
    }
    track.emplace_back(begin, begin + length);
  }
  EXPECT_EQ(tracks.size(), 3u);  // the first lease needs two
  EXPECT_EQ(names["1004/0"], "four, on the device");
  EXPECT_EQ(names["1006/0"], "six, on the device");
  EXPECT_EQ(names["1004/1"], "device 1, private lease, generation 8");
  EXPECT_EQ(names["1004/2"], names["1004/1"]);
}

class WholeFileTest : public ::testing::Test {
 public:
  ~WholeFileTest() override { std::filesystem::remove_all(folder); }

 protected:
  WholeFileTest() { std::filesystem::create_directory(folder); }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      found.push_back(entry.path().filename());
    }
    return found;
  }
  std::string content(const std::string& name) const {
    std::ifstream file(folder / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("whole_file_" + std::to_string(::getpid()));
};

TEST_F(WholeFileTest, FileIsThereCompletelyOrNotAtAll) {
  const auto write = [&](const char* text, bool fails) {
    write_whole_file(folder / "trace.json", [&](const auto& sink) {
      sink(text);
      if (fails) throw std::runtime_error("in the middle");
      sink("!");
    });
  };
  EXPECT_THROW(write("first", true), std::runtime_error);
  EXPECT_THAT(names(), testing::IsEmpty());
  write("second", false);
  EXPECT_THAT(names(), testing::ElementsAre("trace.json"));
  EXPECT_THROW(write("third", true), std::runtime_error);
  EXPECT_THAT(names(), testing::ElementsAre("trace.json"));
  EXPECT_EQ(content("trace.json"), "second!");
}

TEST_F(WholeFileTest, ALinkStaysALinkAndItsTargetIsWritten) {
  std::ofstream(folder / "target") << "old";
  std::filesystem::create_symlink("target", folder / "link");
  write_whole_file(folder / "link", [](const auto& sink) { sink("new"); });
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(content("target"), "new");
  EXPECT_THAT(names(), testing::UnorderedElementsAre("link", "target"));
}

TEST_F(WholeFileTest, LinkToAFileThatIsNotThereMakesThatFile) {
  std::filesystem::create_symlink("second", folder / "first");
  std::filesystem::create_symlink("target", folder / "second");
  write_whole_file(folder / "first", [](const auto& sink) { sink("new"); });
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "first"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "second"));
  EXPECT_EQ(content("target"), "new");
  std::filesystem::create_symlink("no/file", folder / "astray");
  EXPECT_THROW(write_whole_file(folder / "astray", [](const auto& sink) { sink("new"); }), Error);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "astray"));
}

TEST_F(WholeFileTest, LinksInACircleAreRefused) {
  std::filesystem::create_symlink("b", folder / "a");
  std::filesystem::create_symlink("a", folder / "b");
  try {
    write_whole_file(folder / "a", [](const auto& sink) { sink("new"); });
    ADD_FAILURE() << "was written";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("Too many levels of symbolic links"));
  }
  EXPECT_THAT(names(), testing::UnorderedElementsAre("a", "b"));
}

TEST_F(WholeFileTest, PipeIsWrittenToInPlace) {
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] { read = content("pipe"); });
  write_whole_file(pipe, [](const auto& sink) { sink("text"); });
  reader.join();
  EXPECT_EQ(read, "text");
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST_F(WholeFileTest, UnwritableFileIsRefusedWithTheReason) {
  const auto text_of = [](const std::filesystem::path& path) {
    try {
      write_whole_file(path, [](const auto& sink) { sink("text"); });
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::output_file);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(text_of(folder / "no" / "such.json"),
              testing::AllOf(testing::HasSubstr("no/such.json"),
                             testing::HasSubstr("No such file or directory")));
  EXPECT_THAT(text_of("/dev/full"), testing::HasSubstr("No space left on device"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  std::filesystem::create_directory(folder / "taken");
  EXPECT_THAT(text_of(folder / "taken"), testing::HasSubstr("directory"));
  EXPECT_THAT(names(), testing::ElementsAre("taken"));
}

}  // namespace
}  // namespace ctxbroker::detail
