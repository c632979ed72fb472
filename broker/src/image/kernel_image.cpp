// SPDX-License-Identifier: Apache-2.0
// The public functions of ctxbroker/kernel_image.hpp.
#include "ctxbroker/kernel_image.hpp"

#include <algorithm>
#include <array>

#include "ctxbroker/error.hpp"
#include "image/image.hpp"
#include "image/ptx_text.hpp"
#include "observe/enum_names.hpp"

namespace ctxbroker {

namespace {

// In the order of the enumerations.
constexpr std::array code_names{"ptx", "machine-code", "link-time", "unknown"};
constexpr std::array compression_names{"none", "lz4", "zstd"};
constexpr std::array image_names{"ptx", "cubin", "fatbin", "linked"};

image::Target target_of(const ImageEntry& entry) noexcept {
  return {entry.compute_capability, entry.variant};
}

std::string words_for(const ImageEntry& entry) {
  switch (entry.kind) {
    case CodeKind::ptx:
      return "PTX " + entry.ptx_version;
    case CodeKind::machine_code:
      return entry.is_relocatable ? "machine code to be linked" : "machine code";
    case CodeKind::link_time:
      return "link-time code";
    case CodeKind::unknown:
      break;
  }
  return "unknown code";
}

}  // namespace

KernelImage describe_image(const void* data, std::size_t bytes) {
  try {
    return image::describe({static_cast<const std::byte*>(data), data == nullptr ? 0 : bytes});
  } catch (const image::ImageError& error) {
    throw Error(ErrorKind::kernel_image, error.what());
  }
}

const char* to_string(CodeKind kind) noexcept {
  return detail::name_of(code_names, kind);
}

const char* to_string(Compression compression) noexcept {
  return detail::name_of(compression_names, compression);
}

const char* to_string(ImageKind kind) noexcept {
  return detail::name_of(image_names, kind);
}

std::string target_name(const ImageEntry& entry) {
  return image::to_string(target_of(entry));
}

std::string summary(const KernelImage& image) {
  std::string text;
  if (image.kind == ImageKind::cubin) text = "cubin with ";
  if (image.kind == ImageKind::fatbin) text = "fatbin with ";
  if (image.kind == ImageKind::linked) text = "linked image with ";
  if (image.entries.empty()) return text + "nothing in it";
  for (std::size_t i = 0; i < image.entries.size(); ++i) {
    if (i > 0) text += i + 1 < image.entries.size() ? ", " : " and ";
    text += words_for(image.entries[i]) + " for " + target_name(image.entries[i]);
  }
  return text;
}

bool runs_on(const ImageEntry& entry, int compute_capability) noexcept {
  if (entry.kind == CodeKind::ptx) return image::runs_on(target_of(entry), compute_capability);
  if (entry.kind != CodeKind::machine_code || entry.is_relocatable) return false;
  // Machine code also runs on later devices of its major version.
  return entry.compute_capability / 10 == compute_capability / 10 &&
         image::runs_on(target_of(entry), compute_capability);
}

bool runs_on(const KernelImage& image, int compute_capability) noexcept {
  const auto runs = [&](const ImageEntry& entry) { return runs_on(entry, compute_capability); };
  // A linked image is one program, so all of its entries have to run.
  if (image.kind == ImageKind::linked) {
    return std::all_of(image.entries.begin(), image.entries.end(), runs);
  }
  return std::any_of(image.entries.begin(), image.entries.end(), runs);
}

}  // namespace ctxbroker
