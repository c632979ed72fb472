// SPDX-License-Identifier: Apache-2.0
// What can be said of a library's file without loading it.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "ctxbroker/error.hpp"
#include "ctxbroker/kernel_image.hpp"
#include "elf_file.hpp"
#include "ladder.hpp"
#include "process/process.hpp"

namespace ctxbroker::validate {
namespace {

constexpr const char* entry_name = "ctxb_plugin_entry";

struct Found {
  std::size_t offset = 0;
  KernelImage image;
};

// Fatbins and cubins among the file's data. Throws Failed for one that cannot be read.
std::vector<Found> images_in(const ElfFile& file) {
  constexpr unsigned char fatbin[] = {0x50, 0xED, 0x55, 0xBA, 0x01, 0x00};
  constexpr unsigned char elf[] = {0x7F, 'E', 'L', 'F', 2, 1};
  constexpr std::size_t machine_at = 18, cuda_machine = 190;
  const std::vector<char>& bytes = file.bytes();
  std::vector<Found> found;
  std::size_t end = 0;  // of the last image
  for (std::size_t at = 8; at + 64 <= bytes.size(); at += 8) {
    if (at < end) continue;
    const char* const here = bytes.data() + at;
    const bool is_cubin = std::memcmp(here, elf, sizeof elf) == 0 &&
                          static_cast<unsigned char>(here[machine_at]) == cuda_machine &&
                          here[machine_at + 1] == 0;
    if (!is_cubin && std::memcmp(here, fatbin, sizeof fatbin) != 0) continue;
    try {
      found.push_back({at, describe_image(here, bytes.size() - at)});
      end = at + static_cast<std::size_t>(found.back().image.bytes);
    } catch (const Error& error) {
      throw Failed("the device image at byte " + std::to_string(at) +
                   " of the file cannot be read: " + error.message());
    }
  }
  if (found.empty()) {
    throw Skipped("there is no fatbin or cubin in the file; it may have PTX or CUDA text");
  }
  return found;
}

bool anybody_can_write(const std::string& folder) {
  struct stat about {};
  return ::stat(folder.c_str(), &about) == 0 && (about.st_mode & S_IWOTH) != 0;
}

}  // namespace

void static_library(Trial& trial) {
  const ElfFile file(trial.file);
}

void static_entry(Trial& trial) {
  const ElfFile file(trial.file);
  for (const ElfFile::Symbol& symbol : file.exports()) {
    if (symbol.name != entry_name) continue;
    check_that(symbol.is_data, "ctxb_plugin_entry is a function, and has to be data");
    return;
  }
  throw Failed("it exports no ctxb_plugin_entry, so hosts do not take it for a plug-in library");
}

void static_needed_libraries(Trial& trial) {
  const ElfFile file(trial.file);
#if defined(__aarch64__)
  constexpr const char* loader = "/lib/ld-linux-aarch64.so.1";
#else
  constexpr const char* loader = "/lib64/ld-linux-x86-64.so.2";
#endif
  // The loader resolves names, and runs no code of the library.
  const auto listed =
      detail::run_process(loader, {"--list", trial.file.string()}, std::chrono::seconds(20));
  for (const std::string& name : file.needed()) {
    const bool is_driver = name.rfind("libcuda.so", 0) == 0;  // the host brings it
    const bool is_missing =
        listed.output.find(name + " => not found") != std::string::npos ||
        listed.output.find(name + ": cannot open shared object file") != std::string::npos;
    check_that(is_driver || !is_missing, "it needs " + name + ", which is not on this machine");
  }
}

void static_text_relocations(Trial& trial) {
  check_that(!ElfFile(trial.file).has_text_relocations(),
             "it has text relocations: compile all of it with -fPIC");
}

void static_executable_stack(Trial& trial) {
  const ElfFile file(trial.file);
  check_that(!file.has_executable_stack(),
             "it asks for an executable stack, which the loader then gives to the whole host: look "
             "for assembler sources without a .note.GNU-stack section");
  check_that(!file.has_writable_code(), "it has a segment that is code and can be written to");
}

void static_run_path(Trial& trial) {
  const ElfFile file(trial.file);
  for (const std::string& folder : file.run_path()) {
    check_that(!folder.empty(),
               "its run path has an empty entry, which is the host's working folder");
    check_that(
        folder[0] == '/' || folder.rfind("$ORIGIN", 0) == 0 || folder.rfind("${ORIGIN}", 0) == 0,
        "its run path has the entry \"" + folder +
            "\", which is relative to the host's working folder");
    check_that(!anybody_can_write(folder),
               "its run path has the folder " + folder + ", to which everybody can write");
  }
}

void static_images(Trial& trial) {
  images_in(ElfFile(trial.file));
}

void static_exports(Trial& trial) {
  std::string others;
  std::size_t count = 0;
  const ElfFile file(trial.file);
  for (const ElfFile::Symbol& symbol : file.exports()) {
    if (symbol.name == entry_name) continue;
    if (++count <= 3) others += (others.empty() ? "" : ", ") + symbol.name;
  }
  check_that(count == 0,
             "it exports " + std::to_string(count) + " other symbols (" + others +
                 (count > 3 ? ", ..." : "") +
                 "), which other libraries can meet: use -fvisibility=hidden or a version "
                 "script, as ctxb_add_plugin does");
}

void static_architectures(Trial& trial) {
  const std::vector<Found> images = images_in(ElfFile(trial.file));
  for (const Found& found : images) {
    const auto& entries = found.image.entries;
    check_that(std::any_of(entries.begin(), entries.end(),
                           [](const ImageEntry& entry) { return entry.kind == CodeKind::ptx; }),
               "the device image at byte " + std::to_string(found.offset) + " of the file (" +
                   summary(found.image) +
                   ") has no PTX, so it runs neither on later GPUs nor on the software device");
  }
}

}  // namespace ctxbroker::validate
