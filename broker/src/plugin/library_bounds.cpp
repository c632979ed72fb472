// SPDX-License-Identifier: Apache-2.0
#include "plugin/library_bounds.hpp"

#include <algorithm>

namespace ctxbroker::detail {

LibraryBounds::LibraryBounds(const Extent& library) : library_(library) {
  const std::vector<LoadedObject> present = loaded_objects();
  std::vector<std::string> names;  // of what the library needs, and what that needs
  const auto add_needed = [&](const LoadedObject& user) {
    for (const std::string& name : user.needed) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  };
  for (const LoadedObject& one : present) {
    if (Extent{one.begin, one.end} == library) add_needed(one);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = std::find_if(present.begin(), present.end(), [&](const LoadedObject& one) {
      return one.name == names[i] && !one.path.empty();
    });
    if (found != present.end()) add_needed(*found);
  }
  for (const LoadedObject& one : present) {
    const Extent extent{one.begin, one.end};
    if (extent == library) continue;
    const bool is_needed =
        !one.path.empty() && std::find(names.begin(), names.end(), one.name) != names.end();
    others_.push_back({extent, one.path, is_needed});
  }
}

const LibraryBounds::Object* LibraryBounds::find_other(const void* address) const noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (at >= library_.begin && at < library_.end) return nullptr;
  const auto found = std::find_if(others_.begin(), others_.end(), [&](const Object& one) {
    return at >= one.extent.begin && at < one.extent.end;
  });
  return found != others_.end() ? &*found : nullptr;
}

std::string LibraryBounds::other_at(const void* address) const {
  const Object* const other = find_other(address);
  if (other == nullptr) return {};
  return other->path.empty() ? "the program" : "\"" + other->path + "\"";
}

std::string LibraryBounds::stranger_at(const void* address) const {
  const Object* const other = find_other(address);
  return other == nullptr || other->is_needed ? std::string() : other_at(address);
}

std::string remedy_for_shared_data() {
  return ". Both have something of the same name, of which a process keeps one. The plug-in's "
         "author has to build it with hidden visibility (-fvisibility=hidden, which "
         "ctxb_add_plugin sets); until then, load one of the two in a worker";
}

}  // namespace ctxbroker::detail
