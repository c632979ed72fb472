// Several plug-ins one after the other over the same image or block, from host memory to host
// memory: upload, every plug-in's work handed over by events, download, one wait. The plug-ins may
// be on several devices.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ctxbroker/export.hpp"
#include "ctxbroker/plugin_instance.hpp"

namespace ctxbroker {

class Broker;

struct JobInfo {
  std::uint32_t width = 1;        // pixels in a row, or frames in this block
  std::uint32_t height = 1;       // rows, or channels
  std::int64_t position = 0;      // frame number, or first sample
  double sample_rate = 0;         // Hz; 0 for images
  std::uint64_t deadline_ns = 0;  // 0: offline
  bool discontinuity = false;     // not the successor of the last block
};

// Where two neighbours share memory (shared and green leases of one device do) the buffer is handed
// over as it is; else it is copied from context to context. Neither makes the host wait.
class CTXB_API Chain {
 public:
  // The instances are borrowed, are all of the same media, and are active for at least
  // `sizes`; the caller keeps them alive. Throws Error: invalid_argument, out_of_memory.
  Chain(Broker& broker, std::vector<PluginInstance*> stages, const ActivationSizes& sizes);
  Chain(Chain&&) noexcept;
  Chain& operator=(Chain&&) noexcept;
  ~Chain();

  // One job. `input` and `output` are host memory, tightly packed, and may be the same: images
  // width * height * 4 floats (RGBA), audio height runs of width floats. Returns when `output` is
  // complete. A plug-in whose lease was lost meanwhile is activated anew first, but not when it is
  // active for real time. Throws Error: invalid_argument (too large), plugin_failed, driver_call,
  // context_lost; the output is then undefined, and the chain can be used again unless the text
  // says otherwise.
  void process(const float* input, float* output, const JobInfo& job);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ctxbroker
