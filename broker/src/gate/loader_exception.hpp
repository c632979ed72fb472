// SPDX-License-Identifier: Apache-2.0
// Exceptions that come out of the loader, which cannot deal with them.
#pragma once

#include "context/tenant_identity.hpp"

namespace ctxbroker::detail {

// A static constructor or destructor that throws does not end at dlopen or dlclose: the exception
// passes the loader, whose lock stays taken for ever then, and every later dlopen of another thread
// hangs. These functions end the process instead, as any uncaught exception does (std::terminate),
// after a record and a line to standard error that name the library. Any thread.

// Call dlopen and dlclose. The text names the library as `file`. `tenant` is null if the library
// belongs to no tenant.
void* open_or_end(const char* file, int mode, const TenantIdentity* tenant) noexcept;
void close_or_end(void* library, const char* file, const TenantIdentity* tenant) noexcept;

// For a handler around another call of the loader that opens a library, while the exception is
// handled.
[[noreturn]] void end_after_loader_exception(const TenantIdentity* tenant,
                                             const char* file) noexcept;

}  // namespace ctxbroker::detail
