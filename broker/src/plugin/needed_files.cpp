// SPDX-License-Identifier: Apache-2.0
#include "plugin/needed_files.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>

#include "gate/loaded_objects.hpp"
#include "image/elf.hpp"
#include "plugin/build_id.hpp"
#include "process/environment.hpp"

namespace ctxbroker::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_dynamic_text = 4096;   // bytes, of a name or a run path
constexpr std::size_t most_entries = 65536;          // of a dynamic section
constexpr std::size_t most_files = 4096;             // that one library may need
constexpr std::streamoff most_cache = 64 << 20;      // bytes
constexpr std::uint64_t most_compared = 1ULL << 31;  // bytes of a file without a build ID

// Their versions fit older users, and the driver is the gate.
constexpr std::string_view common_names[] = {"ld-linux", "libc.so.",    "libm.so.",
                                             "libdl.so", "libpthread.", "librt.so.",
                                             "libgcc_s", "libstdc++.",  "libcuda.so"};

bool is_common(std::string_view name) {
  return std::any_of(std::begin(common_names), std::end(common_names),
                     [&](std::string_view one) { return name.starts_with(one); });
}

std::vector<std::string> split_paths(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(':'), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// Puts the folder of the file in the place of $ORIGIN. Folders with other names to be replaced are
// left out.
std::vector<std::string> run_path_folders(std::string_view run_path, const fs::path& file) {
  std::vector<std::string> found;
  for (std::string folder : split_paths(run_path)) {
    for (const std::string_view word : {"${ORIGIN}", "$ORIGIN"}) {
      const std::size_t at = folder.find(word);
      if (at != std::string::npos) folder.replace(at, word.size(), file.parent_path().string());
    }
    if (folder.find('$') == std::string::npos) found.push_back(std::move(folder));
  }
  return found;
}

// Reads texts and tables of one file by their addresses.
class DynamicReader {
 public:
  explicit DynamicReader(const fs::path& file) : file_(file) {
    const auto head = file_.header();
    if (!head || head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_phentsize != sizeof(Elf64_Phdr)) {
      return;
    }
    for (std::uint32_t index = 0; index < head->e_phnum; ++index) {
      const auto segment = file_.segment(*head, index);
      if (!segment) return;
      if (segment->p_type == PT_LOAD) loaded_.push_back(*segment);
      if (segment->p_type == PT_DYNAMIC) dynamic_ = *segment;
    }
    machine_ = head->e_machine;
  }

  std::uint16_t machine() const noexcept { return dynamic_.p_filesz != 0 ? machine_ : 0; }

  std::vector<Elf64_Dyn> entries() const {
    std::vector<Elf64_Dyn> all;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic_.p_filesz;
         at += sizeof(Elf64_Dyn)) {
      const auto entry = file_.read<Elf64_Dyn>(dynamic_.p_offset + at);
      if (!entry || entry->d_tag == DT_NULL || all.size() == most_entries) break;
      all.push_back(*entry);
    }
    return all;
  }

  // Empty: it does not lie in the file.
  std::string text_at(std::uint64_t address) const {
    for (const Elf64_Phdr& one : loaded_) {
      if (address < one.p_vaddr || address - one.p_vaddr >= one.p_filesz) continue;
      const std::uint64_t room = one.p_filesz - (address - one.p_vaddr);
      std::string text(std::min<std::uint64_t>(room, longest_dynamic_text), '\0');
      if (!file_.copy(one.p_offset + (address - one.p_vaddr), text.data(), text.size())) return {};
      const std::size_t end = text.find('\0');
      return end == std::string::npos ? std::string() : text.substr(0, end);
    }
    return {};
  }

 private:
  image::ElfOnDisk file_;
  std::vector<Elf64_Phdr> loaded_;
  Elf64_Phdr dynamic_{};
  std::uint16_t machine_ = 0;
};

// /etc/ld.so.cache of glibc 2.2 or later: a header, entries, texts. Anything else is no cache.
std::unordered_map<std::string, std::string> read_loader_cache() {
  struct Header {
    char magic[20];
    std::uint32_t count, text_bytes;
    std::uint32_t unused[5];
  };
  struct Entry {
    std::int32_t flags;
    std::uint32_t name, file, system;
    std::uint64_t processor;
  };
  constexpr std::string_view magic = "glibc-ld.so.cache1.1";
  std::unordered_map<std::string, std::string> files;
  std::ifstream stream("/etc/ld.so.cache", std::ios::binary | std::ios::ate);
  const std::streamoff size = stream ? static_cast<std::streamoff>(stream.tellg()) : 0;
  if (size < static_cast<std::streamoff>(sizeof(Header)) || size > most_cache) return files;
  std::string all(static_cast<std::size_t>(size), '\0');
  stream.seekg(0);
  if (!stream.read(all.data(), size)) return files;
  Header header{};
  std::memcpy(&header, all.data(), sizeof header);
  if (std::string_view(header.magic, sizeof header.magic) != magic ||
      header.count > (all.size() - sizeof header) / sizeof(Entry)) {
    return files;
  }
  const auto text = [&](std::uint32_t at) -> std::string {
    const std::size_t end = at < all.size() ? all.find('\0', at) : std::string::npos;
    return end == std::string::npos ? std::string() : all.substr(at, end - at);
  };
  for (std::uint32_t index = 0; index < header.count; ++index) {
    Entry entry{};
    std::memcpy(&entry, all.data() + sizeof header + index * sizeof entry, sizeof entry);
    files.emplace(text(entry.name), text(entry.file));  // the first counts
  }
  return files;
}

}  // namespace

NeededFiles::NeededFiles() : cache_(read_loader_cache()) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) program_run_path_ = read(program).old_run_path;
  const auto folders_of_user = kept_secure_variable("LD_LIBRARY_PATH");
  if (folders_of_user) environment_ = split_paths(*folders_of_user);
}

const NeededFiles::Dynamic& NeededFiles::read(const fs::path& file) {
  const auto known = known_.find(file);
  if (known != known_.end()) return known->second;
  Dynamic dynamic;
  const DynamicReader reader(file);
  const std::vector<Elf64_Dyn> entries = reader.entries();
  const auto texts = std::find_if(entries.begin(), entries.end(),
                                  [](const Elf64_Dyn& one) { return one.d_tag == DT_STRTAB; });
  if (texts != entries.end()) {
    dynamic.machine = reader.machine();
    for (const Elf64_Dyn& one : entries) {
      if (one.d_tag != DT_NEEDED && one.d_tag != DT_RPATH && one.d_tag != DT_RUNPATH) continue;
      std::string text = reader.text_at(texts->d_un.d_ptr + one.d_un.d_val);
      if (text.empty()) continue;
      if (one.d_tag == DT_RPATH) dynamic.old_run_path = run_path_folders(text, file);
      if (one.d_tag == DT_RUNPATH) dynamic.run_path = run_path_folders(text, file);
      if (one.d_tag == DT_NEEDED) dynamic.needed.push_back(std::move(text));
    }
    if (!dynamic.run_path.empty()) dynamic.old_run_path.clear();  // it does not count then
  }
  return known_.emplace(file, std::move(dynamic)).first->second;
}

bool NeededFiles::fits(const fs::path& file, std::uint16_t machine) {
  std::error_code error;
  return fs::is_regular_file(file, error) && read(file).machine == machine;
}

fs::path NeededFiles::find(const std::string& name, const std::vector<std::string>& old_run_paths,
                           const Dynamic& user) {
  const std::uint16_t machine = user.machine;
  if (name.find('/') != std::string::npos) return fits(name, machine) ? fs::path(name) : fs::path();
  const std::vector<std::string> none;
  const bool is_old = user.run_path.empty();
  const std::array<const std::vector<std::string>*, 4> lists{is_old ? &old_run_paths : &none,
                                                             is_old ? &program_run_path_ : &none,
                                                             &environment_, &user.run_path};
  for (const auto* list : lists) {
    for (const std::string& folder : *list) {
      fs::path file = fs::path(folder) / name;
      if (fits(file, machine)) return file;
    }
  }
  if (const auto cached = cache_.find(name); cached != cache_.end()) {
    if (fits(cached->second, machine)) return cached->second;
  }
  for (const char* folder : {"/lib64", "/usr/lib64", "/lib", "/usr/lib"}) {
    fs::path file = fs::path(folder) / name;
    if (fits(file, machine)) return file;
  }
  return {};
}

std::vector<NeededFile> NeededFiles::of(const fs::path& library) {
  struct User {
    fs::path file;
    std::vector<std::string> old_run_paths;  // its own, then those of its users
  };
  std::vector<NeededFile> found;
  std::vector<User> users{{library, {}}};
  std::vector<std::string> seen;
  for (std::size_t i = 0; i < users.size() && users.size() < most_files; ++i) {
    const Dynamic dynamic = read(users[i].file);
    std::vector<std::string> old = dynamic.old_run_path;
    old.insert(old.end(), users[i].old_run_paths.begin(), users[i].old_run_paths.end());
    for (const std::string& name : dynamic.needed) {
      if (is_common(name) || std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
      seen.push_back(name);
      fs::path file = find(name, old, dynamic);
      if (file.empty()) continue;
      found.push_back({name, file, users[i].file});
      users.push_back({std::move(file), old});
    }
  }
  return found;
}

bool is_same_library(const fs::path& one, const fs::path& other) {
  std::error_code error;
  if (fs::equivalent(one, other, error)) return true;
  const auto size = fs::file_size(one, error);
  if (error || size != fs::file_size(other, error) || error) return false;
  const std::string id = build_id(one);
  if (!id.empty()) return id == build_id(other);
  if (size > most_compared) return false;
  std::ifstream first(one, std::ios::binary), second(other, std::ios::binary);
  std::array<char, 65536> left{}, right{};
  while (first && second) {
    first.read(left.data(), left.size());
    second.read(right.data(), right.size());
    if (first.gcount() != second.gcount() || left != right) return false;
  }
  return true;
}

std::vector<std::string> find_other_versions(const fs::path& library) {
  std::vector<std::string> texts;
  const std::vector<LoadedObject> present = loaded_objects();
  NeededFiles needed_files;
  for (const NeededFile& needed : needed_files.of(library)) {
    const auto loaded = std::find_if(present.begin(), present.end(), [&](const LoadedObject& one) {
      return one.name == needed.name && !one.path.empty();
    });
    if (loaded == present.end() || is_same_library(loaded->path, needed.file)) continue;
    const auto user = std::find_if(present.begin(), present.end(), [&](const LoadedObject& one) {
      return std::find(one.needed.begin(), one.needed.end(), needed.name) != one.needed.end();
    });
    std::string text =
        "\"" + library.string() + "\" gets another version of " + needed.name + " than its own: ";
    text += needed.by == library ? "it" : "\"" + needed.by.string() + "\"";
    text += " needs \"" + needed.file.string() + "\", but the process has \"" + loaded->path +
            "\" under that name";
    if (user != present.end()) {
      text +=
          ", which " + (user->path.empty() ? "the program" : "\"" + user->path + "\"") + " needs";
    }
    texts.push_back(text + ". Load one of the two in a worker, where it has its own");
  }
  return texts;
}

}  // namespace ctxbroker::detail
