// SPDX-License-Identifier: Apache-2.0
#include "module/stored_image.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <unordered_map>

#include "ctxbroker/error.hpp"
#include "image/image.hpp"

namespace ctxbroker::detail {
namespace {

// Global and never ended: images may be let go of while the process ends.
struct Store {
  std::mutex mutex;
  std::unordered_multimap<std::uint64_t, std::weak_ptr<const StoredImage>> images;
};
Store& store() {
  static Store* const one = new Store();
  return *one;
}

// A container states sizes of its own, which the driver believes; text ends at its 0.
bool is_container(std::span<const std::byte> bytes) noexcept {
  const image::Format format = image::format_of(bytes);
  return format == image::Format::fatbin || format == image::Format::elf;
}

std::optional<KernelImage> describe(std::span<const std::byte> bytes, const std::string& who) {
  try {
    return describe_image(bytes.data(), bytes.size());
  } catch (const Error& error) {
    if (!is_container(bytes)) return std::nullopt;
    throw Error(ErrorKind::kernel_image, who + " cannot be loaded: " + error.message() +
                                             "; it is " + std::to_string(bytes.size()) +
                                             " bytes long: build or copy it again");
  }
}

std::shared_ptr<const StoredImage> make(std::span<const std::byte> bytes, std::uint64_t hash,
                                        const std::string& who) {
  auto made = std::make_shared<StoredImage>();
  made->hash = hash;
  made->size = bytes.size();
  made->about = describe(bytes, who);
  made->bytes.resize(bytes.size() + 1);
  std::memcpy(made->bytes.data(), bytes.data(), bytes.size());
  return made;
}

}  // namespace

std::string_view StoredImage::text() const noexcept {
  if (!about || about->kind != ImageKind::ptx) return {};
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), size);
  return all.substr(0, all.find('\0'));
}

bool StoredImage::has_kernel(std::string_view name, int compute_capability) const noexcept {
  if (!about) return false;
  return std::any_of(about->entries.begin(), about->entries.end(), [&](const ImageEntry& entry) {
    return runs_on(entry, compute_capability) &&
           std::find(entry.kernels.begin(), entry.kernels.end(), name) != entry.kernels.end();
  });
}

bool StoredImage::may_need_compiler(int compute_capability) const noexcept {
  return !about ||
         std::none_of(about->entries.begin(), about->entries.end(), [&](const ImageEntry& entry) {
           return entry.kind == CodeKind::machine_code && runs_on(entry, compute_capability);
         });
}

bool StoredImage::has_memory() const noexcept {
  if (!about) return true;
  return std::any_of(about->entries.begin(), about->entries.end(), [](const ImageEntry& entry) {
    const bool readable = entry.kind == CodeKind::ptx || entry.kind == CodeKind::machine_code;
    return !readable || std::any_of(entry.variables.begin(), entry.variables.end(),
                                    [](const auto& variable) { return !variable.is_constant; });
  });
}

std::shared_ptr<const StoredImage> store_image(std::span<const std::byte> bytes,
                                               const std::string& who) {
  const std::uint64_t hash =
      std::hash<std::string_view>()({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  Store& all = store();
  const std::lock_guard lock(all.mutex);
  const auto [first, last] = all.images.equal_range(hash);
  for (auto entry = first; entry != last;) {
    auto image = entry->second.lock();
    if (image != nullptr && image->size == bytes.size() &&
        std::memcmp(image->bytes.data(), bytes.data(), bytes.size()) == 0) {
      return image;
    }
    entry = image == nullptr ? all.images.erase(entry) : std::next(entry);
  }
  auto image = make(bytes, hash, who);
  all.images.emplace(hash, image);
  return image;
}

}  // namespace ctxbroker::detail
