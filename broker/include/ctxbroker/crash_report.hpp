// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names the plug-in when the process crashes.
#pragma once

#include "ctxbroker/export.hpp"

namespace ctxbroker {

/// Switches on, or off, that a crash names the plug-in. Off at the start of the process.
///
/// While it is on, a fatal signal (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) on a thread that is in
/// a plug-in's function, or that a plug-in has started, writes one line to standard error. It says
/// which plug-in, in which function, on which thread. For any other thread nothing is written, and
/// neither is it for the crash of a process that was forked. Then the handler runs that was there
/// before, or the system's default, so that core dumps, crash reporters and sanitizers work as
/// before.
///
/// Switch it on before the first plug-in is loaded, and after your own handlers and your crash
/// reporter. Leave it off where an earlier handler recovers from such signals, as that of a Java
/// virtual machine does: the line would be written although nothing has crashed.
///
/// The broker's handlers run on an alternate signal stack. Threads that call plug-ins and have none
/// get one of 64 KiB, so that an overflow of the stack is named too.
///
/// Process-wide: it counts for all brokers. Thread-safe.
CTXB_API void name_crashes(bool on) noexcept;

}  // namespace ctxbroker
