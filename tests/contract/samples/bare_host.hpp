// SPDX-License-Identifier: Apache-2.0
// A host without a broker, which plug-ins share the device's primary context with: as things were,
// for tests that show what the broker is good for.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <filesystem>
#include <vector>

#include "ctxbroker/plugin.h"

namespace ctxbroker::test {

// Retains the primary context and makes it current on this thread. Throws std::runtime_error with
// the call that failed, here and below.
class BareHost {
 public:
  BareHost(std::uint32_t width, std::uint32_t height);

  // Loads, creates and activates the first plug-in of a library with its defaults. It stays for
  // ever, as does all that it took.
  const ctxb_plugin& load(const std::filesystem::path& library);

  // RGBA floats; waits for the result.
  std::vector<float> process(const ctxb_plugin& plugin, const std::vector<float>& pixels);

 private:
  ctxb_buffer buffer(CUdeviceptr data) const;

  std::uint32_t width_, height_;
  CUstream stream_ = nullptr;
  CUdeviceptr in_ = 0, out_ = 0;
};

}  // namespace ctxbroker::test
