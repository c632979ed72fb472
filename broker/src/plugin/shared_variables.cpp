// SPDX-License-Identifier: Apache-2.0
#include "plugin/shared_variables.hpp"

#include <cxxabi.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "gate/dynamic_tables.hpp"
#include "plugin/library_bounds.hpp"
#include "process/read_word.hpp"

namespace ctxbroker::detail {
namespace {

struct Search {
  const Extent& code;
  std::map<std::string, std::uintptr_t> found;  // by name: where the process's one is
  std::exception_ptr failed;
};

bool is_variable(const dl_phdr_info& object, std::uintptr_t address) noexcept {
  bool is_writable = false;
  for (const ElfW(Phdr) & part : std::span(object.dlpi_phdr, object.dlpi_phnum)) {
    const std::uintptr_t begin = object.dlpi_addr + part.p_vaddr;
    if (address < begin || address >= begin + part.p_memsz) continue;
    if (part.p_type == PT_GNU_RELRO) return false;  // a constant that the loader has filled in
    is_writable |= part.p_type == PT_LOAD && (part.p_flags & PF_W) != 0;
  }
  return is_writable;
}

void search(const dl_phdr_info& object, Search& search) {
  const DynamicTables tables = dynamic_tables_of(object);
  for (const auto relocations : tables.relocations) {
    for (const ElfW(Rela) & relocation : relocations) {
      if (!fills_with_symbol(relocation)) continue;
      const ElfW(Sym)& symbol = symbol_of(tables, relocation);
      if (ELF64_ST_BIND(symbol.st_info) != STB_GNU_UNIQUE || symbol.st_shndx == SHN_UNDEF) continue;
      const std::uintptr_t led_to = read_word(object.dlpi_addr + relocation.r_offset);
      if (is_in(search.code, led_to) || !is_variable(object, object.dlpi_addr + symbol.st_value))
        continue;
      const std::string name = tables.names + symbol.st_name;
      const bool is_flag = name.starts_with("_ZGV");  // that another variable is initialised
      if (!is_flag) search.found.emplace(name, led_to);
    }
  }
}

int search_if_wanted(dl_phdr_info* object, std::size_t, void* given) noexcept {
  Search& wanted = *static_cast<Search*>(given);
  if (extent_of(*object) != wanted.code) return 0;
  try {
    search(*object, wanted);
  } catch (...) {
    wanted.failed = std::current_exception();
  }
  return 1;
}

std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return text != nullptr ? text.get() : name;
}

}  // namespace

std::vector<std::string> find_shared_variables(const Extent& code,
                                               const std::vector<Extent>& relatives) {
  Search all{code, {}, {}};
  dl_iterate_phdr(search_if_wanted, &all);
  if (all.failed) std::rethrow_exception(all.failed);
  std::map<std::string, std::set<std::string>> by_library;
  if (all.found.empty()) return {};
  const LibraryBounds bounds(code);
  for (const auto& [name, address] : all.found) {
    const auto* const where = reinterpret_cast<const void*>(address);
    const std::string other = bounds.stranger_at(where);
    const bool is_related = std::any_of(relatives.begin(), relatives.end(),
                                        [&](const Extent& one) { return is_in(one, where); });
    if (!other.empty() && !is_related) by_library[other].insert(readable(name));
  }
  std::vector<std::string> texts;
  for (const auto& [other, names] : by_library) {
    const std::size_t more = names.size() - 1;
    texts.push_back("shares " + *names.begin() +
                    (more != 0 ? " and " + std::to_string(more) + " more" : "") + " with " + other +
                    remedy_for_shared_data());
  }
  return texts;
}

}  // namespace ctxbroker::detail
