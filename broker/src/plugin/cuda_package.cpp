// SPDX-License-Identifier: Apache-2.0
#include "plugin/cuda_package.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "image/elf.hpp"

namespace ctxbroker::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view device_code_section = ".nvFatBinSegment";
constexpr std::string_view driver_file = "libcuda.so";
constexpr std::size_t searched_at_once = 1 << 20;  // bytes of a file, for the driver's name
constexpr std::uint32_t most_sections = 4096;

// The beginnings of the names of NVIDIA's libraries that other code calls.
constexpr std::string_view nvidia_names[] = {
    "libcublas",  "libcudart", "libcudnn",        "libcufft",        "libcufile",
    "libcupti",   "libcurand", "libcusolver",     "libcusparse",     "libcutensor",
    "libnccl",    "libnpp",    "libnvJitLink",    "libnvToolsExt",   "libnvblas",
    "libnvinfer", "libnvjpeg", "libnvonnxparser", "libnvrtc",        "libnvshmem",
    "libnvvm",    "libcudss",  "libnvidia-",      "libnvptxcompiler"};

// Libraries in these folders themselves are the system's. Folders below them are packages' own.
constexpr std::string_view system_folders[] = {"/lib",           "/lib32",          "/lib64",
                                               "/usr/lib",       "/usr/lib32",      "/usr/lib64",
                                               "/usr/local/lib", "/usr/local/lib64"};

bool is_system_folder(const fs::path& folder) {
  const auto is_one = [](const fs::path& path) {
    return std::find(std::begin(system_folders), std::end(system_folders), path.native()) !=
           std::end(system_folders);
  };
  // /usr/lib/x86_64-linux-gnu
  const bool is_for_processor = folder.filename().native().ends_with("-linux-gnu");
  return is_one(folder) || (is_for_processor && is_one(folder.parent_path()));
}

std::optional<std::string> text_of(const image::ElfOnDisk& file, std::uint64_t offset,
                                   std::size_t longest) {
  std::string text(longest, '\0');
  if (offset >= file.size()) return std::nullopt;
  text.resize(std::min<std::uint64_t>(longest, file.size() - offset));
  if (!file.copy(offset, text.data(), text.size())) return std::nullopt;
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

bool has_device_code(const image::ElfOnDisk& file) {
  const auto header = file.header();
  if (!header || header->e_shentsize != sizeof(Elf64_Shdr)) return false;
  const auto names = file.section(*header, header->e_shstrndx);
  if (!names) return false;
  const std::uint32_t count = std::min<std::uint32_t>(header->e_shnum, most_sections);
  for (std::uint32_t index = 0; index < count; ++index) {
    const auto section = file.section(*header, index);
    if (!section) return false;
    const auto name =
        text_of(file, names->sh_offset + section->sh_name, device_code_section.size() + 1);
    if (name == device_code_section) return true;
  }
  return false;
}

// Returns whether the driver's name lies in that part of the file.
bool names_driver(const image::ElfOnDisk& file, std::uint64_t offset, std::uint64_t bytes) {
  if (offset >= file.size()) return false;
  std::uint64_t left = std::min(bytes, file.size() - offset);
  std::string piece;
  while (left >= driver_file.size()) {
    piece.resize(std::min<std::uint64_t>(left, searched_at_once));
    if (!file.copy(offset, piece.data(), piece.size())) return false;
    if (memmem(piece.data(), piece.size(), driver_file.data(), driver_file.size()) != nullptr) {
      return true;
    }
    const std::size_t done = piece.size() - (driver_file.size() - 1);  // it may lie across the end
    offset += done;
    left -= done;
  }
  return false;
}

// Looks at what the loader maps: what is there for debuggers can be far larger.
bool names_driver(const image::ElfOnDisk& file) {
  const auto header = file.header();
  if (!header) return false;
  for (std::uint32_t index = 0; index < header->e_phnum; ++index) {
    const auto segment = file.segment(*header, index);
    if (!segment) return false;
    if (segment->p_type == PT_LOAD && names_driver(file, segment->p_offset, segment->p_filesz)) {
      return true;
    }
  }
  return false;
}

// "libcudart-0ab1c2d3.so.12.4.127" is how auditwheel names the copy that it puts into a wheel.
bool is_runtime(const std::string& name) {
  return name.starts_with("libcudart.so") || name.starts_with("libcudart-");
}

bool needs_cuda(const LoadedObject& library) {
  return std::any_of(library.needed.begin(), library.needed.end(), [](const std::string& name) {
    return name.starts_with(driver_file) || is_runtime(name);
  });
}

// "libblur.so.3" and "blur.cpython-312-x86_64-linux-gnu.so": "blur"
std::string short_name(const std::string& file_name) {
  std::string name = file_name.substr(0, file_name.find('.'));
  if (name.starts_with("lib") && name.size() > 3) name = name.substr(3);
  return name;
}

// Makes the name of a tenant from it.
std::string as_name(std::string name) {
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return std::isalnum(c) == 0 && c != '-' && c != '_' && c != '.'; },
      '_');
  while (name.ends_with('.')) name.pop_back();
  while (name.starts_with('.')) name.erase(0, 1);
  return name.empty() ? "package" : name;
}

// Packages that work as one, by the beginnings of their names. Their libraries do not link each
// other.
constexpr std::pair<std::string_view, const char*> one_package[] = {{"jax", "jax"}};

std::string package_named(std::string name) {
  if (name.ends_with(".libs")) name.resize(name.size() - 5);  // what a wheel brings along
  for (const auto& [beginning, whole] : one_package) {
    if (name.starts_with(beginning)) return whole;
  }
  return name;
}

// The folder below site-packages, or what lies in that folder's folder for plug-ins.
std::optional<Package> python_package(const fs::path& file) {
  std::optional<Package> package;
  bool is_next = false;
  fs::path folder;
  for (auto part = file.begin(); part != file.end(); ++part) {
    const bool is_file = std::next(part) == file.end();
    if (is_next) {
      package = {as_name(is_file ? short_name(part->native()) : package_named(part->native())),
                 folder};
    }
    is_next = *part == "site-packages" || *part == "dist-packages" ||
              (package.has_value() && *part == "plugins");
    folder /= *part;
  }
  return package;
}

// The package, if a folder in the path names it.
std::optional<Package> folder_of_package(const fs::path& file) {
  if (auto package = python_package(file)) return package;
  for (fs::path folder = file.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    if (folder.extension() == ".bundle" || folder.extension() == ".vst3") {
      return Package{as_name(short_name(folder.filename().native())), folder.parent_path()};
    }
  }
  const fs::path own = file.parent_path();
  if (own.filename() == short_name(file.filename().native())) {
    return Package{as_name(own.filename().native()), own.parent_path()};
  }
  return std::nullopt;
}

}  // namespace

bool uses_cuda(const LoadedObject& library, const fs::path& file) {
  if (needs_cuda(library)) return true;
  const image::ElfOnDisk elf(file);
  return has_device_code(elf) || names_driver(elf);
}

bool is_in_no_package(const LoadedObject& library, const fs::path& file) {
  if (is_system_folder(file.parent_path())) return true;
  if (file.native().find("/site-packages/nvidia/") != std::string::npos) return true;
  return std::any_of(std::begin(nvidia_names), std::end(nvidia_names),
                     [&](std::string_view name) { return library.name.starts_with(name); });
}

Package package_of(const LoadedObject& library, const fs::path& file,
                   const std::vector<LoadedObject>& present) {
  if (const auto python = python_package(file)) {
    // Code that links another package's code works on that package's streams and memory.
    for (const LoadedObject& one : present) {
      if (!needs(library, one)) continue;
      const std::string beside = real_file(one);
      const auto other = python_package(beside);
      if (other && other != python && !is_in_no_package(one, beside) && needs_cuda(one)) {
        return *other;
      }
    }
  }
  if (auto package = folder_of_package(file)) return *std::move(package);
  // Goes up to the library that nothing else in the folder needs. In a ring it is the first of them
  // by its path.
  const fs::path folder = file.parent_path();
  const auto named_for = [&](const fs::path& one) {
    return Package{as_name(short_name(one.filename().native())), folder};
  };
  std::vector<std::pair<const LoadedObject*, fs::path>> line{{&library, file}};
  for (;;) {
    const LoadedObject* const top = line.back().first;
    const fs::path path = line.back().second;
    fs::path above;
    const auto user = std::find_if(present.begin(), present.end(), [&](const LoadedObject& one) {
      if (!needs(one, *top)) return false;
      above = real_file(one);
      return above != path && above.parent_path() == folder;
    });
    if (user == present.end()) return named_for(path);
    const auto ring = std::find_if(line.begin(), line.end(),
                                   [&](const auto& one) { return one.second == above; });
    if (ring == line.end()) {
      line.emplace_back(&*user, above);
      continue;
    }
    return named_for(std::min_element(ring, line.end(), [](const auto& a, const auto& b) {
                       return a.second < b.second;
                     })->second);
  }
}

}  // namespace ctxbroker::detail
