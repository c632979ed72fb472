// What a kernel image holds, read without loading it: no driver, no device, nothing executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

enum class ImageKind {
  ptx,     // text
  cubin,   // machine code of one architecture
  fatbin,  // several of the two
  linked,  // what the software device's linker makes of PTX
};

enum class CodeKind {
  ptx,           // compiled by the driver when it is loaded
  machine_code,  // runs as it is
  link_time,     // intermediate code: has to be linked before it is loaded
  unknown,
};

enum class Compression { none, lz4, zstd };

// A variable of the module, in device or constant memory.
struct ImageVariable {
  std::string name = {};
  std::uint64_t bytes = 0;
  bool is_constant = false;
};

// One program in an image: PTX text and a cubin have one, a fatbin one for each architecture.
struct ImageEntry {
  CodeKind kind = CodeKind::unknown;
  int compute_capability = 0;    // 10 * major + minor
  char variant = '\0';           // 'a': this capability alone; 'f': its family; 0: neither
  std::string ptx_version = {};  // "9.0"; PTX alone has one
  bool is_64_bit = true;
  bool is_relocatable = false;  // machine code that has to be linked before it is loaded
  Compression compression = Compression::none;
  std::uint64_t bytes = 0;           // in the image
  std::uint64_t unpacked_bytes = 0;  // the same where nothing is compressed
  std::string name = {};             // of the source, where the compiler left it
  // In the image's order, as cuModuleGetFunction and cuModuleGetGlobal want them (C++ names are
  // mangled). Link-time code is not read: it has none here.
  std::vector<std::string> kernels = {};
  std::vector<ImageVariable> variables = {};
};

struct KernelImage {
  ImageKind kind = ImageKind::ptx;
  std::uint64_t bytes = 0;
  std::vector<ImageEntry> entries = {};
};

// `bytes` may be larger than the image: what follows it is not read. Throws Error (kernel_image)
// when the bytes are no image, or a truncated or corrupt one; no bytes make it do anything else.
CTXB_API KernelImage describe_image(const void* data, std::size_t bytes);

// "ptx", "machine-code", ...; "none", "lz4", "zstd"; "ptx", "cubin", ...
CTXB_API const char* to_string(CodeKind kind) noexcept;
CTXB_API const char* to_string(Compression compression) noexcept;
CTXB_API const char* to_string(ImageKind kind) noexcept;

// "sm_90a".
CTXB_API std::string target_name(const ImageEntry& entry);

// One line: "fatbin with PTX 9.0 for sm_75 and machine code for sm_90".
CTXB_API std::string summary(const KernelImage& image);

// Whether a device of this compute capability (10 * major + minor) can run the entry by what it
// says of itself; the driver may still find its PTX too new.
CTXB_API bool runs_on(const ImageEntry& entry, int compute_capability) noexcept;
CTXB_API bool runs_on(const KernelImage& image, int compute_capability) noexcept;

}  // namespace ctxbroker
