// The adapter from the broker's records to Boost.Log: a library of its own
// (ctxbroker::boost_log), so that the broker itself links no Boost.Log.
#pragma once

#include <string>

#include "ctxbroker/export.hpp"
#include "ctxbroker/record.hpp"

namespace ctxbroker::boost_log {

// A sink that logs every record through Boost.Log's core: attributes Channel ("host", or the
// plug-in library's name), Severity (ctxbroker::Severity), Topic and TenantId. Adds no sink and
// changes none of the host's: what is printed, and where, stays the host's choice.
CTXB_API RecordSink sink();

// What a command-line host wants when it has no logging of its own: "[warning] blur: text" lines on
// standard error, at `threshold` and above, for records that came through sink(). `colour` adds
// ANSI colours. Until remove_console().
CTXB_API void add_console(Severity threshold, bool colour);
CTXB_API void remove_console();

}  // namespace ctxbroker::boost_log
