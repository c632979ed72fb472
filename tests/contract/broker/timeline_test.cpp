// SPDX-License-Identifier: Apache-2.0
// The timeline of real work, read back from its file.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

struct Event {
  std::string category, name, tenant;
  std::uint64_t process = 0, track = 0, begin = 0, end = 0;  // ns
  int status = 0;
};

// The file's spans and instants.
std::vector<Event> events_of(const Json& trace) {
  std::vector<Event> events;
  for (const Json& json : trace.at("traceEvents")) {
    if (json.at("ph") == "M") continue;
    Event event;
    event.category = json.at("cat");
    event.name = json.at("name");
    event.tenant = json.at("args").at("tenant");
    event.process = json.at("pid");
    event.track = json.at("tid");
    event.begin = static_cast<std::uint64_t>(std::llround(json.at("ts").get<double>() * 1000));
    event.end =
        event.begin + static_cast<std::uint64_t>(std::llround(json.value("dur", 0.0) * 1000));
    event.status = json.at("args").value("status", 0);
    events.push_back(event);
  }
  return events;
}

// Checks that of any two spans of a track, one holds the other or they lie apart.
void expect_nested(const std::vector<Event>& events) {
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<Event>> tracks;
  for (const Event& event : events) tracks[{event.process, event.track}].push_back(event);
  for (auto& [key, track] : tracks) {
    std::stable_sort(track.begin(), track.end(), [](const Event& a, const Event& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<Event> open;
    for (const Event& event : track) {
      while (!open.empty() && open.back().end <= event.begin) open.pop_back();
      if (!open.empty()) {
        ASSERT_LE(event.end, open.back().end) << event.name << " in " << open.back().name;
      }
      open.push_back(event);
    }
  }
}

template <typename Matches>
std::vector<Event> chosen(const std::vector<Event>& events, Matches&& matches) {
  std::vector<Event> found;
  for (const Event& event : events) {
    if (matches(event)) found.push_back(event);
  }
  return found;
}

std::size_t count(const std::vector<Event>& events, const std::string& category,
                  const std::string& name = {}) {
  return chosen(events,
                [&](const Event& event) {
                  return event.category == category && (name.empty() || event.name == name);
                })
      .size();
}

class TimelineTest : public BrokerTest {
 public:
  ~TimelineTest() override { broker.stop_timeline(); }

 protected:
  Json written() {
    std::string text;
    summary = broker.write_timeline([&](std::string_view piece) { text += piece; });
    return Json::parse(text);
  }

  TimelineSummary summary;
};

TEST_F(TimelineTest, HoldsEveryLaunchJobAndCall) {
  broker.start_timeline();
  const PluginLibrary twin = broker.load(test_plugin("behaviours_twin"));
  PluginInstance first = active("affine");
  PluginInstance second =
      broker.create(twin, "affine", {Placement(0), LeaseChoice(LeaseKind::private_own), 0});
  PluginInstance third = active("scratch");
  second.activate(test_sizes);
  for (int job = 0; job < 5; ++job) run({&first, &second, &third});
  const std::vector<Event> events = events_of(written());
  expect_nested(events);
  EXPECT_EQ(summary.dropped, 0u);
  EXPECT_EQ(summary.spans, events.size());
  EXPECT_EQ(summary.threads, 2u) << "this one, and the one that made the private context";
  // Per tenant, as the metrics count them.
  EXPECT_GT(first.metrics().launches + third.metrics().launches, 0u);
  const auto launches = [&](const char* tenant) {
    return chosen(events,
                  [&](const Event& event) {
                    return event.category == "launch" && event.tenant == tenant &&
                           event.status == 0;
                  })
        .size();
  };
  EXPECT_EQ(launches("behaviours"), first.metrics().launches + third.metrics().launches);
  EXPECT_EQ(launches("behaviours_twin"), second.metrics().launches);
  EXPECT_EQ(count(events, "job"), 5u);
  EXPECT_EQ(count(events, "call", "process affine"), 10u);
  EXPECT_EQ(count(events, "call", "process scratch"), 5u);
  EXPECT_EQ(count(events, "call", "activate affine"), 2u);
  EXPECT_EQ(count(events, "device"), 15u);
  const std::vector<Event> uploads = chosen(events, [](const Event& event) {
    return event.name == "upload" && event.tenant == "host";  // the plug-ins upload too
  });
  EXPECT_EQ(uploads.size(), 5u);
  EXPECT_EQ(count(events, "copy", "copy between contexts"), 10u);
  EXPECT_EQ(count(events, "copy", "download"), 5u);
  EXPECT_EQ(count(events, "wait", "wait"), 5u);
  EXPECT_GT(count(events, "guard", "guard process"), 0u);
  EXPECT_EQ(count(events, "lease", "make lease behaviours"), 1u);
  EXPECT_EQ(count(events, "lease", "make lease behaviours_twin"), 1u);
  EXPECT_EQ(count(events, "load", "dlopen behaviours_twin"), 1u);
  EXPECT_GT(count(events, "load"), 1u);
  EXPECT_EQ(count(events, "strike"), 0u);
}

TEST_F(TimelineTest, PlacesTheDevicesWorkInsideItsJob) {
  PluginInstance first = active("affine"), second = active("scratch", LeaseKind::private_own);
  broker.start_timeline();
  for (int job = 0; job < 4; ++job) run({&first, &second}, 64, 64);
  const std::vector<Event> events = events_of(written());
  expect_nested(events);
  const auto of = [&](const char* category) {
    return chosen(events, [&](const Event& event) { return event.category == category; });
  };
  const std::vector<Event> jobs = of("job"), device = of("device");
  ASSERT_EQ(jobs.size(), 4u);
  ASSERT_EQ(device.size(), 8u);
  std::uint64_t total = 0;
  for (const Event& work : device) {
    EXPECT_TRUE(std::any_of(jobs.begin(), jobs.end(), [&](const Event& job) {
      return job.begin <= work.begin && work.end <= job.end;
    })) << work.name;
    EXPECT_NE(work.process, jobs[0].process);
    total += work.end - work.begin;
  }
  const double counted = first.metrics().device_seconds + second.metrics().device_seconds;
  EXPECT_NEAR(static_cast<double>(total) * 1e-9, counted, 1e-6);
  EXPECT_GT(counted, 0);
}

TEST_F(TimelineTest, ShowsStrikesAsInstants) {
  broker.start_timeline();
  PluginInstance instance = active("null_stream");
  EXPECT_THROW(run({&instance}), Error);
  const std::vector<Event> strikes =
      chosen(events_of(written()), [](const Event& event) { return event.category == "strike"; });
  ASSERT_EQ(strikes.size(), instance.metrics().strikes);
  ASSERT_EQ(strikes.size(), 1u);
  EXPECT_THAT(strikes[0].name, HasSubstr("the stream is not the one lent"));
  EXPECT_EQ(strikes[0].tenant, "behaviours");
  EXPECT_EQ(strikes[0].begin, strikes[0].end);
}

TEST_F(TimelineTest, SpansOfSeveralThreadsDoNotOverlapOnATrack) {
  std::vector<PluginInstance> instances;
  std::vector<std::unique_ptr<Graph>> graphs;
  constexpr std::size_t threads = 4;
  for (std::size_t i = 0; i < threads; ++i) instances.push_back(active("affine"));
  for (PluginInstance& instance : instances) {
    graphs.push_back(
        std::make_unique<Graph>(broker, std::vector<PluginInstance*>{&instance}, test_sizes));
  }
  broker.start_timeline();
  std::vector<std::thread> workers;
  for (auto& graph : graphs) {
    workers.emplace_back([&graph] {
      std::vector<float> samples(16 * 16 * 4, 1.0F);
      JobInfo job;
      job.width = job.height = 16;
      for (int round = 0; round < 20; ++round) {
        graph->process(samples.data(), samples.data(), job);
      }
    });
  }
  for (auto& worker : workers) worker.join();
  const std::vector<Event> events = events_of(written());
  expect_nested(events);  // the four share one lease: its spans must not overlap on a track
  EXPECT_EQ(summary.threads, threads);
  EXPECT_EQ(count(events, "job"), threads * 20);
  EXPECT_EQ(count(events, "launch"), threads * 20);
  EXPECT_EQ(count(events, "device"), threads * 20);
}

TEST_F(TimelineTest, SpansBeyondTheBufferAreCountedAsDropped) {
  PluginInstance instance = active("affine");
  broker.start_timeline({std::size_t{64} << 10});
  for (int job = 0; job < 200; ++job) run({&instance});
  const Json trace = written();
  EXPECT_GT(summary.dropped, 0u);
  EXPECT_EQ(trace.at("otherData").at("dropped"), summary.dropped);
  EXPECT_EQ(trace.at("otherData").at("spans"), events_of(trace).size());
  EXPECT_EQ(summary.spans, 511u);
}

TEST_F(TimelineTest, RefusesMoreMemoryThanThereIs) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer ends a process that asks for so much";
#endif
  for (const std::size_t bytes : {std::numeric_limits<std::size_t>::max(), std::size_t{1} << 60}) {
    EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { broker.start_timeline({bytes}); }),
                HasSubstr(std::to_string(bytes)));
  }
  broker.start_timeline();  // a refusal does not count as a start
  broker.stop_timeline();
}

TEST_F(TimelineTest, RefusesAnEmptySink) {
  broker.start_timeline();
  EXPECT_THAT(error_text(ErrorKind::invalid_argument,
                         [&] { return broker.write_timeline(TimelineSink()); }),
              HasSubstr("sink"));
  broker.stop_timeline();
}

TEST_F(TimelineTest, RecordsNothingWhileStopped) {
  broker.start_timeline();
  EXPECT_THAT(error_text(ErrorKind::wrong_state, [&] { broker.start_timeline(); }),
              HasSubstr("already"));
  broker.stop_timeline();
  PluginInstance instance = active("affine");
  run({&instance});
  EXPECT_THAT(events_of(written()), testing::IsEmpty());
}

TEST_F(TimelineTest, TimelineFileIsWrittenWholeOrNotAtAll) {
  broker.start_timeline();
  PluginInstance instance = active("affine");
  run({&instance});
  const auto folder =
      std::filesystem::path(testing::TempDir()) / ("timeline_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  EXPECT_THAT(error_text(ErrorKind::output_file,
                         [&] { broker.write_timeline(folder / "no" / "such.json"); }),
              HasSubstr("no/such.json"));
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  // The failed call loses none of the recorded events.
  broker.write_timeline(folder / "trace.json");
  std::ifstream file(folder / "trace.json");
  EXPECT_EQ(count(events_of(Json::parse(file)), "job"), 1u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ctxbroker
