// SPDX-License-Identifier: Apache-2.0
// The libraries that the loader has in the process.
#pragma once

#include <link.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ctxbroker::detail {

// The addresses from an object's first to its last byte.
struct Extent {
  std::uintptr_t begin = 0, end = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};
inline bool is_in(const Extent& code, std::uintptr_t address) noexcept {
  return address >= code.begin && address < code.end;
}
template <typename Pointer>
bool is_in(const Extent& code, Pointer* pointer) noexcept {
  return is_in(code, reinterpret_cast<std::uintptr_t>(pointer));
}

Extent extent_of(const dl_phdr_info& object) noexcept;
// Returns the addresses of the object that holds this one, or zeros. Any thread.
Extent extent_at(const void* address) noexcept;

struct LoadedObject {
  std::uintptr_t begin = 0, end = 0;
  std::string name;                 // its SONAME, or its file's; the program's: empty
  std::string path;                 // as the loader has it; the program's: empty
  std::string file;                 // its real path, if name_files has found it
  std::vector<std::string> needed;  // the SONAMEs of what it needs
  bool has_run_path = false;  // where the loader looks for libraries depends on who opens them
};

inline bool holds(const LoadedObject& object, std::uintptr_t address) noexcept {
  return address >= object.begin && address < object.end;
}
// Returns whether `user` names `one` among what it needs.
bool needs(const LoadedObject& user, const LoadedObject& one) noexcept;

// An address inside the library that dlopen returned.
const void* address_in(void* library) noexcept;

// These wait for a lock of the loader's: hold none that code inside the loader may wait for.

// How often something was loaded or unloaded since the process began. While this stays the same, so
// does the list. Any thread.
unsigned long long changes_so_far() noexcept;

// In the order in which they were loaded, the program first. `changes`: so far, when they were
// listed. Throws std::bad_alloc. Any thread.
std::vector<LoadedObject> loaded_objects(unsigned long long* changes = nullptr);

// Finds the files that the objects were loaded from. Working folders and links may have changed
// since, so the loader's path can lead to another file by now. The program's own has no path. Reads
// /proc/self/maps. Throws std::bad_alloc. Any thread.
void name_files(std::vector<LoadedObject>& objects);
// The same, and where that is unknown, what the loader's path leads to now. Throws std::bad_alloc.
std::string real_file(const LoadedObject& object);

}  // namespace ctxbroker::detail
