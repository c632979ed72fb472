// SPDX-License-Identifier: Apache-2.0
#include "gate/thread_object.hpp"

#include <link.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include "process/read_word.hpp"

namespace ctxbroker::detail {
namespace {

// The beginning of the name of a class, as the compiler writes it. It is read by way of the system,
// because the object's memory may be something else by now.
class ClassName {
 public:
  explicit ClassName(std::uintptr_t its_class) noexcept {
    const std::uintptr_t type = read_word(its_class - sizeof its_class);
    const std::uintptr_t at = type != 0 ? read_word(type + sizeof type) : 0;
    if (at == 0) return;
    for (std::size_t i = 0; i + sizeof at <= text_.size(); i += sizeof at) {
      const std::uintptr_t word = read_word(at + i);
      std::memcpy(text_.data() + i, &word, sizeof word);
    }
  }
  // The compiler marks a class that no other library can have.
  bool is_of_one_library() const noexcept { return text_[0] == '*'; }
  std::string_view text() const noexcept {
    const std::string_view all(text_.data(), text_.size());
    return is_of_one_library() ? all.substr(1) : all;
  }

 private:
  std::array<char, 64> text_{};  // zeros: compiled without type information
};

constexpr std::string_view any_thread = "NSt6thread";
// The type of the function follows.
constexpr std::string_view before_function = "NSt6thread11_State_implINS_8_InvokerISt5tupleIJ";

// A pointer to a function, to a member, or std::function. A lambda or another class of the code's
// own tells by itself whose it is.
bool calls_any_function(std::string_view name) noexcept {
  if (!name.starts_with(before_function)) return false;
  name.remove_prefix(before_function.size());
  return name.starts_with("PF") || name.starts_with('M') || name.starts_with("St8function");
}

bool is_machine_code(std::uintptr_t address) noexcept {
  return dl_iterate_phdr(
             [](dl_phdr_info* object, std::size_t, void* given) {
               const std::uintptr_t sought = *static_cast<std::uintptr_t*>(given);
               for (const ElfW(Phdr) & part : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
                 const std::uintptr_t begin = object->dlpi_addr + part.p_vaddr;
                 if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
                 if (sought >= begin && sought - begin < part.p_memsz) return 1;
               }
               return 0;
             },
             &address) != 0;
}

// The function's arguments lie before it. Behind it may lie what was there before the object.
std::uintptr_t find_function(std::uintptr_t at, bool (*calls_for_others)(const void*)) noexcept {
  constexpr std::size_t most_words = 8;
  for (std::size_t i = 1; i <= most_words; ++i) {
    const std::uintptr_t word = read_word(at + i * sizeof word);
    if (word == 0 || !is_machine_code(word)) continue;
    try {
      return calls_for_others(reinterpret_cast<const void*>(word)) ? 0 : word;
    } catch (...) {  // out of memory: the class tells more often than not
      return 0;
    }
  }
  return 0;
}

}  // namespace

ThreadObject read_thread_object(std::uintptr_t at, bool (*calls_for_others)(const void*)) noexcept {
  const std::uintptr_t its_class = class_of_object(at);
  if (its_class == 0) return {};
  const ClassName name(its_class);
  if (name.text()[0] != '\0' && !name.text().starts_with(any_thread)) return {};
  const bool searched = !name.is_of_one_library() && calls_any_function(name.text());
  return {its_class, searched ? find_function(at, calls_for_others) : 0};
}

}  // namespace ctxbroker::detail
