// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads what a kernel image holds, without a driver and without running anything in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

/// The format of an image.
enum class ImageKind {
  ptx,     ///< PTX text.
  cubin,   ///< Machine code for one architecture.
  fatbin,  ///< Several images of PTX and machine code in one.
  linked,  ///< PTX that the software device's linker has put together.
};

/// What an entry of an image holds.
enum class CodeKind {
  ptx,           ///< PTX, which the driver compiles when it loads it.
  machine_code,  ///< Machine code.
  link_time,     ///< Intermediate code, which has to be linked before it is loaded.
  unknown,       ///< Something else.
};

/// How an entry is packed.
enum class Compression { none, lz4, zstd };

/// A `__device__` or `__constant__` variable of a module.
struct ImageVariable {
  std::string name = {};     ///< As cuModuleGetGlobal takes it.
  std::uint64_t bytes = 0;   ///< Its size.
  bool is_constant = false;  ///< In constant memory.
};

/// One program in an image. PTX text and a cubin have one entry, a fatbin has one for each
/// architecture.
struct ImageEntry {
  CodeKind kind = CodeKind::unknown;
  int compute_capability = 0;    ///< 10 * major + minor: 90 for 9.0.
  char variant = '\0';           ///< 'a': for this capability only; 'f': for its family; else 0.
  std::string ptx_version = {};  ///< "9.0". Only PTX has one.
  bool is_64_bit = true;
  bool is_relocatable = false;  ///< Machine code that has to be linked before it is loaded.
  Compression compression = Compression::none;
  std::uint64_t bytes = 0;           ///< Its size in the image.
  std::uint64_t unpacked_bytes = 0;  ///< Its size when unpacked.
  std::string name = {};             ///< The source's name, if the compiler left it.
  /// Names as cuModuleGetFunction takes them, mangled for C++, in the image's order. Empty for
  /// link-time code.
  std::vector<std::string> kernels = {};
  /// In the image's order. Empty for link-time code.
  std::vector<ImageVariable> variables = {};
};

/// What an image holds.
struct KernelImage {
  ImageKind kind = ImageKind::ptx;
  std::uint64_t bytes = 0;  ///< The image's size.
  std::vector<ImageEntry> entries = {};
};

/// Describes an image. It is safe for any bytes, damaged ones too.
///
/// @param data   the image. It is only read during the call.
/// @param bytes  how many bytes can be read there. The image may be shorter.
/// @return the description, a copy. Thread-safe.
/// @throws Error  `kernel_image`, when the bytes are not an image, or when it is truncated or
///                damaged.
[[nodiscard]] CTXB_API KernelImage describe_image(const void* data, std::size_t bytes);

/// Returns "ptx", "machine-code", "link-time" or "unknown". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(CodeKind kind) noexcept;
/// Returns "none", "lz4" or "zstd". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(Compression compression) noexcept;
/// Returns "ptx", "cubin", "fatbin" or "linked". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(ImageKind kind) noexcept;

/// Returns the name of an entry's architecture: "sm_90a". Thread-safe.
[[nodiscard]] CTXB_API std::string target_name(const ImageEntry& entry);

/// Describes an image in one line: "fatbin with PTX 9.0 for sm_75 and machine code for sm_90".
/// Thread-safe.
[[nodiscard]] CTXB_API std::string summary(const KernelImage& image);

/// Tells whether a device can run an entry, as far as the entry itself says. A driver can still
/// refuse PTX of a version that is newer than the driver.
///
/// @param compute_capability  the device's, as 10 * major + minor. Thread-safe.
[[nodiscard]] CTXB_API bool runs_on(const ImageEntry& entry, int compute_capability) noexcept;
/// Tells whether a device can run an image: one of its entries or, in a linked image, all of them.
/// Thread-safe.
[[nodiscard]] CTXB_API bool runs_on(const KernelImage& image, int compute_capability) noexcept;

}  // namespace ctxbroker
