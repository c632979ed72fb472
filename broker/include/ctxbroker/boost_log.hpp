// SPDX-License-Identifier: Apache-2.0
/// @file
/// Passes the broker's records to Boost.Log. This is a library of its own (ctxbroker::boost_log),
/// so that the broker itself does not link Boost.Log.
#pragma once

#include <string>

#include "ctxbroker/export.hpp"
#include "ctxbroker/record.hpp"

namespace ctxbroker::boost_log {

/// Returns a sink for BrokerOptions::records that logs every record through Boost.Log's core.
///
/// A record has the attributes Channel (the tenant's name), Severity (ctxbroker::Severity), Topic
/// and TenantId. The host's own Boost.Log sinks decide what is printed, and where. Thread-safe.
[[nodiscard]] CTXB_API RecordSink sink();

/// Prints the records that come through sink() to standard error: "[warning] blur: text". It is for
/// programs that have no logging of their own. A second call replaces the first. Call it on one
/// thread at a time.
///
/// @param threshold  the least severity that is printed.
/// @param colour     whether to add ANSI colours.
CTXB_API void add_console(Severity threshold, bool colour);

/// Stops the printing that add_console began. Without add_console it does nothing. Call it on one
/// thread at a time.
CTXB_API void remove_console();

}  // namespace ctxbroker::boost_log
