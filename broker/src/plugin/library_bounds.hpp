// SPDX-License-Identifier: Apache-2.0
// Tells a library's own data from that of other libraries.
//
// Where two libraries have a variable of one name, the loader may give the process only one of
// them (STB_GNU_UNIQUE). The second library then works on the first one's, and neither hears of it.
#pragma once

#include <string>
#include <vector>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

class LibraryBounds {
 public:
  // Lists what is loaded now. `library`: where the library lies. Throws std::bad_alloc.
  explicit LibraryBounds(const Extent& library);

  // Returns words for the other library, or the program, that holds the address. Empty: the library
  // itself holds it, or no library does, as for allocated memory.
  std::string other_at(const void* address) const;
  // The same, but empty also for libraries that this one needs.
  std::string stranger_at(const void* address) const;

 private:
  struct Object {
    Extent extent;
    std::string path;
    bool is_needed = false;
  };
  const Object* find_other(const void* address) const noexcept;

  Extent library_;
  std::vector<Object> others_;
};

// The end of a message about data that lies in another library.
std::string remedy_for_shared_data();

}  // namespace ctxbroker::detail
