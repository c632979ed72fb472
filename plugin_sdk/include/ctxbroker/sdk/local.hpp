// SPDX-License-Identifier: Apache-2.0
/// @file
/// Internal to the SDK: keeps a variable, or the static members of a class, to the library that
/// holds them.
///
/// Without it, compilers give such variables to the whole process (STB_GNU_UNIQUE): of two plug-ins
/// with a class of the same name, the second would use the variables of the first.
#pragma once

#if defined(_WIN32)
#define CTXB_SDK_LOCAL
#else
#define CTXB_SDK_LOCAL __attribute__((visibility("hidden")))
#endif
