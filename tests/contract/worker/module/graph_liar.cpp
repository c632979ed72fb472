// SPDX-License-Identifier: Apache-2.0
// A worker program that answers a graph's messages as a sound one does, but for the lie that
// TEST_GRAPH_LIE names. Worker processes are the less trusted side, so the host has to find it.
#include <ctxbroker/worker_module.h>
#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "worker/graph_wire.hpp"

namespace {

using namespace ctxbroker::detail;

const ctxb_worker_host* host = nullptr;
std::string lie;
std::string waiting;

bool is(const char* name) {
  return lie == name;
}

// Lies that begin when the test has made a file.
bool is_later() {
  const char* const mark = std::getenv("TEST_GRAPH_MARK");
  return mark != nullptr && access(mark, F_OK) == 0;
}

std::string sound_answer(std::uint32_t type) {
  switch (type) {
    case graph_open:
      return R"({"driver": "software", "path": "", "version": 13000, "reason": "",
                 "devices": [{"ordinal": 0, "name": "one", "major": 9, "minor": 0,
                              "multiprocessors": 1, "memory_bytes": 1, "mps": false,
                              "memory_pools": true, "pinned_pools": true}]})";
    case graph_create:
      return R"({"path": "liar.so", "has_state": true, "plugins": [{
          "id": "com.example.test.liar", "name": "Liar", "vendor": "", "version": "1.0.0",
          "description": "", "media": "image", "cuda_use": "kernels",
          "inputs": [{"id": "in", "name": "In", "channels": 8, "samples": 1}],
          "outputs": [{"id": "out", "name": "Out", "channels": 8, "samples": 1}],
          "parameters": [{"id": "amount", "name": "Amount", "type": "float", "minimum": 0,
                          "maximum": 1, "default": [0], "automatable": true}]}]})";
    case graph_timeline:
      return "[1, 0, 1]";
    case graph_activate:
      return R"({"job_inputs": [[0, 0]], "latency": 0, "before": [0], "memory": 0})";
    case graph_deactivate:
      return R"({"states": [null]})";
    case graph_save_preset:
      return R"({"states": [null], )"
             R"("preset": "{\"schema\": \"ctxbroker.preset/1\", )"
             R"(\"plugin\": \"com.example.test.liar\", )"
             R"(\"version\": \"1.0.0\", \"values\": {\"amount\": 0}}"})";
    case graph_question:
      return R"([[0, 0, 8, 8]])";
    default:
      return "null";
  }
}

std::string answer_to(std::uint32_t type) {
  if (type == graph_open) {
    if (is("open_no_json")) return "{\"driver\": ";
    if (is("open_other_type")) return "[1, 2, 3]";
    if (is("open_no_device"))
      return R"({"driver": "software", "path": "", "version": 1,
                                         "reason": "", "devices": []})";
    if (is("open_deep")) return std::string(100000, '[');
    if (is("open_slow")) {  // each array's place has a name of 1 MB
      std::string text = "{\"" + std::string(1000000, 'k') + "\": [[]";
      for (int i = 0; i < 100000; ++i) text += ",[]";
      return text + "]}";
    }
    if (is("open_dies")) {
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        _exit(8);
      }).detach();
      std::string text = sound_answer(type);
      std::string numbers = ", \"numbers\": [0";
      for (int i = 0; i < 500000; ++i) numbers += ",0";
      return text.insert(text.rfind('}'), numbers + "]");
    }
    if (is("open_members")) {  // each name differs from all others in its last bytes
      std::string text = "[0";
      for (int object = 0; object < 5; ++object) {
        text += ",{\"k\":0";
        for (int i = 10000; i < 19000; ++i) {
          text += ",\"" + std::string(1000, 'k') + std::to_string(i) + "\":0";
        }
        text += "}";
      }
      return text + "]";
    }
    if (is("open_many")) {
      std::string text = "[[]";
      for (int i = 0; i < 2000000; ++i) text += ",[]";
      return text + "]";
    }
    if (is("error_text")) {
      return R"({"kind": 0, "message": "\u001b[2J red", "call": "a\u0007", "status": 0,
                 "status_name": "", "device": -1, "tenant": ""})";
    }
    if (is("error_lost")) {
      return R"({"kind": 7, "message": "", "call": "", "status": 0, "status_name": "",
                 "device": -1, "tenant": ""})";
    }
  }
  if (type == graph_create && is("bad_descriptor")) {
    std::string text = sound_answer(type);
    return text.replace(text.find("com.example"), 11, "not an id!!");
  }
  if (type == graph_create && (is("media") || lie.compare(0, 5, "later") == 0)) {
    std::string text = sound_answer(type);
    return text.replace(text.find("image"), 5, "audio");
  }
  if (type == graph_save_preset && is("preset")) {
    std::string text = sound_answer(type);
    return text.replace(text.find("liar"), 4, "nobody");
  }
  if (type == graph_create && is("other_plugin")) {
    std::string text = sound_answer(type);
    return text.replace(text.find("test.liar"), 9, "test.other");
  }
  if (type == graph_create && is("no_plugins")) {
    return R"({"path": "", "has_state": false, "plugins": []})";
  }
  if (type == graph_activate) {
    if (is("later_latency") && is_later()) {
      return R"({"job_inputs": [[0, 0]], "latency": 268435456, "before": [0], "memory": 0})";
    }
    if (is("later_inputs") && is_later()) {
      return R"({"job_inputs": [[0, 0], [0, 1]], "latency": 0, "before": [0], "memory": 0})";
    }
    if (is("swapped_inputs")) {
      return R"({"job_inputs": [[1, 0], [0, 0]], "latency": 0, "before": [0], "memory": 0})";
    }
    if (is("missing_input")) {
      return R"({"job_inputs": [[0, 0], [0, 1]], "latency": 0, "before": [0], "memory": 0})";
    }
    static int times = 0;
    if (is("other_frames")) {  // in each process but the first
      const char* const mark = std::getenv("TEST_GRAPH_MARK");
      if (mark == nullptr) _exit(1);
      if (times++ == 0 && access(mark, F_OK) == 0) {
        return R"({"job_inputs": [[0, 0], [0, 1], [1, 0]], "latency": 0, "before": [0], "memory": 0})";
      }
      close(creat(mark, 0600));
      return R"({"job_inputs": [[0, 0], [1, 0], [1, 1]], "latency": 0, "before": [0], "memory": 0})";
    }
    if (is("job_input"))
      return R"({"job_inputs": [[7, 0]], "latency": 0, "before": [0], "memory": 0})";
    if (is("frames_far")) {
      return R"({"job_inputs": [[0, -2147483647], [0, 2147483647]], "latency": 0, "before": [0], "memory": 0})";
    }
    if (is("negative_input"))
      return R"({"job_inputs": [[-1, 0]], "latency": 0, "before": [0], "memory": 0})";
    if (is("latency")) return R"({"job_inputs": [[0, 0]], "latency": -1, "before": [0]})";
    if (is("latency_huge")) {
      return R"({"job_inputs": [[0, 0]], "latency": 1000000000000, "before": [0], "memory": 0})";
    }
    if (is("memory")) {
      return R"({"job_inputs": [[0, 0]], "latency": 0, "before": [0], "memory": -1})";
    }
    if (is("latencies")) return R"({"job_inputs": [[0, 0]], "latency": 0, "before": []})";
  }
  if (type == graph_deactivate && is("states")) return R"({"states": [null, null]})";
  if (type == graph_deactivate && is("state_long")) return R"({"states": [1]})";
  if (type == graph_deactivate && is("state_negative")) return R"({"states": [-1]})";
  if (type == graph_deactivate && is("state_short")) return R"({"states": [15]})";
  if (type == graph_question) {
    if (is("region_huge")) return "[[0, 0, 4294967295, 4294967295]]";
    if (is("regions_many")) return "[[0, 0, 8, 8], [0, 0, 8, 8]]";
    if (is("region_elsewhere")) return "[[4, 4, 8, 8]]";
    if (is("region_larger")) return "[[0, 0, 16, 16]]";
    if (is("region_beyond")) return "[[-2147483648, 0, 8, 8]]";
    if (is("region_wraps")) return "[[0, 0, 4294967304, 8]]";
    if (is("region_float")) return "[[0, 1e300, 8, 8]]";
    if (is("region_text")) return "[[0, 0, \"8\", 8]]";
    if (is("value")) return "[1000]";
    if (is("metrics")) return R"({"tenants": [{"id": 1, "name": "liar"}], "put_off": []})";
    if (is("metrics_number")) return R"({"tenants": 5})";
  }
  return sound_answer(type);
}

// Says that every job is done, whether there is one or not, again and again.
void fill_board(const Json& question) {
  void* memory = nullptr;
  std::uint64_t bytes = 0;
  host->buffer(question.at("done_board").get<std::uint64_t>(), &memory, &bytes);
  std::memset(memory, 0xFF, bytes);
  std::thread([] {
    for (;;) host->notify(ring_notification, nullptr, 0);
  }).detach();
}

void answer_document(const ctxb_worker_message& message, ctxb_worker_reply& to) {
  DocumentMessage asked;
  std::memcpy(&asked, message.data, sizeof asked);
  void* memory = nullptr;
  std::uint64_t size = 0;
  host->buffer(asked.block, &memory, &size);
  const bool at_first = message.type == graph_open;
  const auto question = [&] {
    return Json::parse(std::string(static_cast<char*>(memory), asked.bytes));
  };
  if (message.type == graph_activate && is("done_board")) fill_board(question());
  if (message.type == graph_timeline) {
    const int file = host->take_descriptor(question().at("file").get<std::uint64_t>());
    if (ftruncate(file, is("timeline") ? off_t{1} << 40 : 8) != 0) _exit(1);
    close(file);
  }
  if (message.type != graph_more) waiting = answer_to(message.type);
  DocumentReply reply;
  reply.bytes = waiting.size();
  reply.fits = waiting.size() <= size ? 1 : 0;
  if (reply.fits != 0) std::memcpy(memory, waiting.data(), waiting.size());
  if (message.type == graph_deactivate && is("state_short")) reply.state_bytes = 16;
  if (message.type == graph_deactivate && is("state_beyond")) reply.state_bytes = size;
  if (message.type == graph_deactivate && is("state_endless")) reply.state_bytes = UINT64_MAX;
  if (message.type == graph_timeline && is("state_unasked")) reply.state_bytes = 16;
  to.bytes = sizeof reply;
  if (at_first && is("open_short")) to.bytes = 3;
  if (at_first && is("open_long")) to.bytes = to.capacity;
  if (at_first && is("open_beyond")) reply.bytes = size + 1;
  if (at_first && is("open_endless")) reply.bytes = UINT64_MAX, reply.fits = 0;
  if (is("open_grows")) reply.bytes = size + 1, reply.fits = 0;
  if (is("error_without_text") && message.type == graph_create) reply.failed = 1;
  if (at_first && (is("error_text") || is("error_lost"))) reply.failed = 1;
  if ((is("stale_open") && at_first) || (is("stale") && message.type == graph_create)) {
    reply.failed = other_set_up;
  }
  std::memcpy(to.data, &reply, std::min<std::uint64_t>(sizeof reply, to.capacity));
}

void answer_job(ctxb_worker_reply& to) {
  JobReply reply;
  static std::uint64_t jobs = 0;
  reply.job = ++jobs;
  to.bytes = sizeof reply;
  if (is("job_short")) to.bytes = 1;
  if (is("job_long")) to.bytes = sizeof reply + 8;
  if (is("job_outcome")) reply.outcome = 99;
  if (is("job_error")) reply.failed = 1, to.bytes = sizeof reply + 40;
  std::memset(to.data, '{', 64);
  std::memcpy(to.data, &reply, sizeof reply);
}

}  // namespace

int main() {
  const char* const wanted = std::getenv("TEST_GRAPH_LIE");
  lie = wanted != nullptr ? wanted : "";
  ctxb_worker_module module{};
  module.size = sizeof module;
  module.abi = CTXB_WORKER_ABI;
  module.start = [](const ctxb_worker_host* functions) -> ctxb_status {
    host = functions;
    const char* const trap = std::getenv("TEST_GRAPH_TRAP");
    if (trap != nullptr && unlink(trap) == 0) _exit(7);  // this start fails
    return CTXB_OK;
  };
  module.handle = [](const ctxb_worker_message* message, ctxb_worker_reply* reply) -> ctxb_status {
    if (message->type < graph_process) {
      answer_document(*message, *reply);
    } else {
      answer_job(*reply);
    }
    return CTXB_OK;
  };
  return ctxb_worker_serve(&module);
}
