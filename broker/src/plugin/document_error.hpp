// SPDX-License-Identifier: Apache-2.0
// Mistakes in the broker's JSON documents are Errors of the document's kind.
#pragma once

#include "ctxbroker/error.hpp"
#include "json/document.hpp"

namespace ctxbroker::detail {

// Returns what `read` returns, and turns its DocumentError into an Error.
template <typename Read>
auto with_errors_of(ErrorKind kind, const Read& read) {
  try {
    return read();
  } catch (const json::DocumentError& error) {
    throw Error(kind, error.what());
  }
}

}  // namespace ctxbroker::detail
