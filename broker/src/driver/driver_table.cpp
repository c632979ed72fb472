#include "driver/driver_table.hpp"

namespace ctxbroker::detail {
namespace {

constexpr bool mandatory = true;
constexpr bool optional = false;

template <typename Function>
void take(Function*& member, const char* symbol, bool needed, void* library, SymbolLookup lookup,
          std::vector<std::string>& missing) {
  member = reinterpret_cast<Function*>(lookup(library, symbol));
  if (member == nullptr && needed) missing.emplace_back(symbol);
}

}  // namespace

std::vector<std::string> fill(DriverTable& table, void* library, SymbolLookup lookup) {
  std::vector<std::string> missing;
#define CTXB_ENTRY(member, symbol, need, parameters) \
  take(table.member, symbol, need, library, lookup, missing);
#include "driver/entry_points.def"
#undef CTXB_ENTRY
  return missing;
}

}  // namespace ctxbroker::detail
