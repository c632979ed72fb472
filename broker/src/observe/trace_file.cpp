// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "observe/timeline.hpp"

namespace ctxbroker::detail {
namespace {

// How the trace file names a category of spans and the values of its spans.
struct SpanCategoryRow {
  const char* name;
  const char* values[2];  // names of Span::values; null: not written
};

// In the order of SpanCategory.
constexpr std::array<SpanCategoryRow, 11> rows{{
    {"guard", {"generation", nullptr}},
    {"job", {"width", "height"}},
    {"call", {nullptr, nullptr}},
    {"launch", {"blocks", "threads_per_block"}},
    {"copy", {"bytes", nullptr}},
    {"wait", {nullptr, nullptr}},
    {"load", {"bytes", nullptr}},
    {"lease", {"device", nullptr}},
    {"strike", {nullptr, nullptr}},
    {"device", {"device", "generation"}},
    {"realtime", {nullptr, nullptr}},
}};
static_assert(rows.size() == static_cast<std::size_t>(SpanCategory::realtime) + 1);

const SpanCategoryRow& row_of(SpanCategory category) noexcept {
  return rows[static_cast<std::size_t>(category)];
}

using Json = nlohmann::ordered_json;

constexpr std::uint64_t cpu_process = 1;
constexpr std::uint64_t first_tenant_process = 1000;  // plus the tenant's id

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Gathers text, so that the sink sees few large pieces.
class Writer {
 public:
  Writer(const Recording& recording, const TenantNames& tenants, const TimelineSink& sink)
      : recording_(recording), tenants_(tenants), sink_(sink) {}

  void text(std::string_view piece) {
    text_ += piece;
    if (text_.size() >= 1 << 16) flush();
  }
  void flush() {
    sink_(text_);
    text_.clear();
  }
  void event(const Json& json) {
    text(first_ ? "\n" : ",\n");
    first_ = false;
    text(dump(json));
  }

  std::string tenant_name(std::uint32_t id) const {
    const auto found = tenants_.find(id);
    return found == tenants_.end() ? "tenant " + std::to_string(id) : found->second;
  }

  void name(const char* what, std::uint64_t process, std::uint64_t track, const Json& value) {
    event({{"ph", "M"},
           {"pid", process},
           {"tid", track},
           {"name", what},
           {"args", {{std::string(what).ends_with("sort_index") ? "sort_index" : "name", value}}}});
  }

  void span(const Span& span, std::uint64_t process, std::uint64_t track) {
    const SpanCategoryRow& row = row_of(span.category);
    std::string title = span.verb;
    if (span.subject[0] != '\0') title += (title.empty() ? "" : " ") + std::string(span.subject);
    Json json{{"ph", "X"},
              {"pid", process},
              {"tid", track},
              {"ts", microseconds(span.begin - recording_.started)},
              {"dur", microseconds(span.end - span.begin)},
              {"cat", row.name},
              {"name", title}};
    if (span.category == SpanCategory::strike) {
      json["ph"] = "i";
      json["s"] = "t";  // of its thread
      json.erase("dur");
    }
    Json& arguments = json["args"] = Json{{"tenant", tenant_name(span.tenant)}};
    for (std::size_t i = 0; i < 2; ++i) {
      if (row.values[i] != nullptr) arguments[row.values[i]] = span.values[i];
    }
    if (span.status != 0) arguments["status"] = span.status;
    event(json);
    ++written_;
  }

  std::uint64_t written() const noexcept { return written_; }

 private:
  static double microseconds(std::uint64_t ns) { return static_cast<double>(ns) / 1000; }

  const Recording& recording_;
  const TenantNames& tenants_;
  const TimelineSink& sink_;
  std::string text_;
  bool first_ = true;
  std::uint64_t written_ = 0;
};

void write_threads(const Recording& recording, Writer& out) {
  out.name("process_name", cpu_process, 0, "CPU, by thread");
  out.name("process_sort_index", cpu_process, 0, 0);
  for (const RecordedThread& thread : recording.threads) {
    out.name("thread_name", cpu_process, thread.id, thread.name);
    for (const Span& span : thread.spans) {
      if (span.category != SpanCategory::device) out.span(span, cpu_process, thread.id);
    }
  }
}

// A lease of one generation: tenant, device, generation.
using LeaseKey = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>;
using LeaseSpans = std::map<LeaseKey, std::vector<const Span*>>;

LeaseSpans spans_by_lease(const Recording& recording) {
  LeaseSpans leases;
  for (const RecordedThread& thread : recording.threads) {
    for (const Span& span : thread.spans) {
      if (span.category != SpanCategory::device) continue;
      leases[{span.tenant, span.values[0], span.values[1]}].push_back(&span);
    }
  }
  for (auto& [key, spans] : leases) {
    std::stable_sort(spans.begin(), spans.end(),
                     [](const Span* a, const Span* b) { return a->begin < b->begin; });
  }
  return leases;
}

// Two chains may use a lease at once, so that its spans overlap: it then has as many tracks as it
// needs. Returns their number.
std::uint64_t write_lease(const LeaseKey& key, const std::vector<const Span*>& spans,
                          std::uint64_t first_track, Writer& out) {
  const auto& [tenant, device, generation] = key;
  const std::uint64_t process = first_tenant_process + tenant;
  std::vector<std::uint64_t> ends;  // of each track's last span
  for (const Span* span : spans) {
    const auto free = std::find_if(ends.begin(), ends.end(),
                                   [&](std::uint64_t end) { return end <= span->begin; });
    const auto track = static_cast<std::size_t>(free - ends.begin());
    if (free == ends.end()) {
      ends.push_back(0);
      out.name("thread_name", process, first_track + track,
               "device " + std::to_string(device) + ", " + span->verb + " lease, generation " +
                   std::to_string(generation));
    }
    ends[track] = span->end;
    Span plain = *span;
    plain.verb = "";  // the lease's kind, which the track's name has told
    out.span(plain, process, first_track + track);
  }
  return ends.size();
}

void write_leases(const Recording& recording, Writer& out) {
  std::set<std::uint32_t> named;
  std::uint64_t track = 1;
  for (const auto& [key, spans] : spans_by_lease(recording)) {
    const std::uint32_t tenant = std::get<0>(key);
    if (named.insert(tenant).second) {
      const std::uint64_t process = first_tenant_process + tenant;
      out.name("process_name", process, 0, out.tenant_name(tenant) + ", on the device");
      out.name("process_sort_index", process, 0, process);
    }
    track += write_lease(key, spans, track, out);
  }
}

}  // namespace

TimelineSummary write_trace(const Recording& recording, const TenantNames& tenants,
                            const TimelineSink& sink) {
  Writer out(recording, tenants, sink);
  out.text(R"({"displayTimeUnit":"ns","traceEvents":[)");
  write_threads(recording, out);
  write_leases(recording, out);
  const TimelineSummary summary{out.written(), recording.dropped, recording.threads.size()};
  out.text("\n],\"otherData\":");
  out.text(dump({{"schema", "ctxbroker.timeline/1"},
                 {"spans", summary.spans},
                 {"dropped", summary.dropped},
                 {"threads", summary.threads},
                 {"steady_clock_ns_at_0", recording.started}}));
  out.text("}\n");
  out.flush();
  return summary;
}

}  // namespace ctxbroker::detail
