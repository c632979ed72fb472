// SPDX-License-Identifier: Apache-2.0
// Any bytes as a picture: an image or a Failure of an input file. The image is complete.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "exit_code.hpp"
#include "files/image_file.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace host = ctxbroker::sample_host;
  // The readers want a file; this one is in memory.
  const int file = ::memfd_create("picture", MFD_CLOEXEC);
  if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    const host::Image image = host::read_image_file("/proc/self/fd/" + std::to_string(file));
    const std::size_t pixels = std::size_t{image.width} * image.height;
    if (pixels == 0 || image.pixels.size() != pixels * 4) std::abort();
  } catch (const host::Failure& failure) {
    if (failure.code() != host::ExitCode::input) std::abort();
  }
  ::close(file);
  return 0;
}
