// SPDX-License-Identifier: Apache-2.0
/// @file
/// Marks what the broker's shared library offers to hosts. All its other symbols are hidden.
#pragma once

/// Stands before every public class and function of the broker's shared library.
#if defined(_WIN32)
#define CTXB_API
#else
#define CTXB_API __attribute__((visibility("default")))
#endif
