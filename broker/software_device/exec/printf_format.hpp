// SPDX-License-Identifier: Apache-2.0
// The text of one device printf, made on the host as the CUDA Programming Guide describes it
// ("Formatted Output"). Knows nothing of kernels: where arguments lie is told by addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace ctxbroker::software::exec {

// What a kernel may read. The format is a kernel's, so nothing that it points to is trusted.
class DeviceReader {
 public:
  // False where the kernel could not read either; the reason is the reader's to keep.
  virtual bool read(std::uint64_t address, std::span<std::byte> into) = 0;

 protected:
  ~DeviceReader() = default;
};

// Limits that CUDA's guide does not name, so that no kernel can make the host write without end.
// Formats and strings are read up to most_text and then cut, and so is the whole text; wider fields
// and numbers of more digits get most_width.
inline constexpr std::size_t most_text = 1 << 16;  // bytes
inline constexpr int most_width = 1024;
// Specifiers beyond that many arguments are printed as they stand, as CUDA does it.
inline constexpr int most_arguments = 32;

struct FormattedText {
  std::string text;
  int arguments = 0;  // that were used, widths among them: what printf returns
};

// `format` is the address of the format, `arguments` that of the arguments: one after another, each
// aligned to its own size. Nothing if a read failed. Throws std::bad_alloc.
std::optional<FormattedText> format_text(DeviceReader& memory, std::uint64_t format,
                                         std::uint64_t arguments);

}  // namespace ctxbroker::software::exec
