// SPDX-License-Identifier: Apache-2.0
// The driver's functions as typed pointers, generated from the list in entry_points.def.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

namespace ctxbroker::detail {

struct DriverTable {
  // NOLINTBEGIN(bugprone-macro-parentheses): a declarator and a parameter list take none
#define CTXB_ENTRY(member, symbol, need, parameters) CUresult(CUDAAPI* member) parameters = nullptr;
#include "driver/entry_points.def"
#undef CTXB_ENTRY
  // NOLINTEND(bugprone-macro-parentheses)

  // The gate stands before this driver: it sees every call that changes what is current on a thread
  // or its stream-capture mode, so that guards need not look.
  bool current_is_watched = false;
};

// Finds one symbol of the driver. Returns null when there is none.
using SymbolLookup = void* (*)(void* library, const char* symbol);

// Fills `table` and returns the mandatory symbols that were not found.
std::vector<std::string> fill(DriverTable& table, void* library, SymbolLookup lookup);

}  // namespace ctxbroker::detail
