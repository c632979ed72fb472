// SPDX-License-Identifier: Apache-2.0
#include "graph/node_times.hpp"

#include <algorithm>

#include "observe/span.hpp"

namespace ctxbroker::detail {
namespace {

// ns between two events that have both happened; 0 when the driver does not tell.
std::uint64_t elapsed(const DriverTable& driver, const Event& from, const Event& to) noexcept {
  float milliseconds = 0;
  const CUresult status = driver.event_elapsed_time(&milliseconds, from.get(), to.get());
  return status == CUDA_SUCCESS && milliseconds > 0
             ? static_cast<std::uint64_t>(static_cast<double>(milliseconds) * 1e6)
             : 0;
}

}  // namespace

NodeTimes::NodeTimes(const std::shared_ptr<Lease>& lease)
    : begin_(make_timing_event(lease)),
      end_(make_timing_event(lease)),
      tie_(make_timing_event(lease)) {}

void NodeTimes::tie_clocks(const DriverTable& driver, CUstream stream) noexcept {
  tied_at_ = 0;
  if (!timeline_observed()) return;
  const std::uint64_t now = timeline_now();
  if (driver.event_record(tie_.get(), stream) == CUDA_SUCCESS) tied_at_ = now;
}

std::uint64_t NodeTimes::take(const Lease& lease, const std::string& plugin) noexcept {
  const std::uint64_t length = elapsed(lease.table(), begin_, end_);
  if (tied_at_ != 0) record(lease, plugin, length);
  return length;
}

void NodeTimes::record(const Lease& lease, const std::string& plugin,
                       std::uint64_t length) noexcept {
  Span span;
  span.begin = tied_at_ + elapsed(lease.table(), tie_, begin_);
  span.end = span.begin + length;
  // The host has waited for the end, so it lies in the past; that bounds the error of the tie.
  const std::uint64_t late = span.end - std::min(span.end, timeline_now());
  span.begin -= late;
  span.end -= late;
  span.category = SpanCategory::device;
  span.verb = to_string(lease.kind());
  span.tenant = lease.tenant().id.value;
  span.values[0] = static_cast<std::uint64_t>(lease.device_ordinal());
  span.values[1] = lease.generation();
  set_subject(span, plugin.c_str());
  record_span(span);
  tied_at_ = 0;
}

}  // namespace ctxbroker::detail
