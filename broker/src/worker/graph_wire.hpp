// SPDX-License-Identifier: Apache-2.0
// The messages between a WorkerGraph and its worker. Both must be of one build, which the first
// message checks.
//
// DOCUMENTS set up and ask: JSON text, in a block that the host lends for them. The message is a
// DocumentMessage, and the answer a DocumentReply; the answer's text replaces the question's in the
// block, or waits in the worker until a larger block has come. States of plug-ins can be large, so
// they are not part of the text: their bytes follow it in the block, one after another.
//
// JOBS are a JobMessage, and a block with everything else: a table, then the samples whose
// buffers are not lent. The answer is a JobReply, and the outputs are in the blocks. A job that
// is only submitted has two messages.
//
// DEVICE MEMORY comes by descriptor, with a document that gives it a handle. It is the host's, or
// one of the processes makes it for the pictures between two of them, and the host passes its
// descriptor on. These handles count separately from those of blocks.
//
// ERRORS of a job come behind its JobReply, and those of a document in its text, both as JSON. If
// CUDA has ended, the worker answers CTXB_ERROR_CONTEXT_LOST instead, and is ended.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ctxbroker/error.hpp"
#include "ctxbroker/worker_graph.hpp"
#include "json/document.hpp"
#include "worker/layout.hpp"

namespace ctxbroker::detail {

// The types of all messages of a graph; layout.hpp has the rest of the library's own types.
enum GraphCall : std::uint32_t {
  graph_open = first_graph_type,  // documents
  graph_create,
  graph_restore,
  graph_question,
  graph_load_preset,
  graph_save_preset,
  graph_set,
  graph_activate,
  graph_deactivate,
  graph_timeline,
  graph_lend_device,
  graph_take_back_device,
  graph_make_device,  // its descriptor comes back, for another process
  graph_more,         // the answer that has not fitted
  graph_process,      // jobs
  graph_submit,
  graph_is_done,  // the answer's outcome is 0 or 1
  graph_finish,
};

struct DocumentMessage {
  std::uint64_t epoch = 0;  // which set-up it belongs to
  std::uint64_t block = 0;
  std::uint64_t bytes = 0;  // of the text
  std::uint64_t state_bytes = 0;
};

struct DocumentReply {
  std::uint64_t bytes = 0;  // of the text
  std::uint64_t state_bytes = 0;
  std::uint32_t fits = 0;    // all of it is in the block
  std::uint32_t failed = 0;  // 1: it is an error
};

// For `failed`: the message is of another set-up, so this process is another one than the host
// thinks.
constexpr std::uint32_t other_set_up = 2;

constexpr std::uint64_t longest_document = std::uint64_t{2} << 30;

struct JobMessage {
  std::uint64_t epoch = 0;
  std::uint64_t job = 0;  // graph_finish: what graph_submit answered
  std::uint64_t block = 0, bytes = 0;
  std::uint32_t width = 0, height = 0;
  std::int64_t position = 0;
  double sample_rate = 0;
  std::uint64_t deadline_ns = 0;
  ImageRegion region{};
  // In the block, in this order: the table of buffers, extents, changes.
  std::uint32_t inputs = 0, outputs = 0, extents = 0, changes = 0;
  std::uint32_t discontinuity = 0, has_transport = 0;
  Transport transport{};
};
static_assert(std::is_trivially_copyable_v<JobMessage>);

struct BufferPlace {
  std::uint64_t block = 0;  // 0: the job's own
  std::uint64_t offset = 0, bytes = 0;
  std::uint64_t on_device = 0;  // 1: `block` names lent device memory of the host
};

struct JobReply {
  std::uint64_t job = 0;
  std::uint32_t outcome = 0;
  std::uint32_t failed = 0;  // 1: the text of an error follows
};

// Notifications. The host looks at the board of done jobs (done_jobs.hpp) after each of them. The
// second kind has no content.
constexpr std::uint32_t record_notification = 1;
constexpr std::uint32_t ring_notification = 2;

using json::Json;

// A whole number that fits into its type. Throws DocumentError for anything else.
template <typename Number>
Number whole(const Json& json) {
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<Number>::max());
  if (const auto number = json::whole_number(json, most)) return static_cast<Number>(*number);
  if (std::is_signed_v<Number> && json.is_number_integer() && !json.is_number_unsigned()) {
    const auto number = json.get<std::int64_t>();
    if (number >= static_cast<std::int64_t>(std::numeric_limits<Number>::min())) {
      return static_cast<Number>(number);
    }
  }
  throw json::DocumentError("a whole number cannot be " + json::described(json));
}

std::string dumped(const Json& json);

Json to_json(const Error& error);
// Throws DocumentError or a JSON exception for anything else.
Error read_error(const Json& json);

bool any_on_device(const std::vector<GraphPort>& ports) noexcept;
Json to_json(const std::vector<GraphPort>& ports);
std::vector<GraphPort> read_ports(const Json& json);
Json to_json(const InstanceOptions& options);
InstanceOptions read_instance_options(const Json& json);
Json to_json(const GraphOptions& options);
GraphOptions read_graph_options(const Json& json);
Json to_json(const JobInfo& job);
JobInfo read_job(const Json& json);
Json to_json(const ImageRegion& region);
ImageRegion read_region(const Json& json);
Json to_json(const ParameterValue& value);
ParameterValue read_value(const Json& json);
// Reads what to_json(const BrokerMetrics&) wrote. Names are cleaned.
BrokerMetrics read_metrics(const Json& json);

}  // namespace ctxbroker::detail
