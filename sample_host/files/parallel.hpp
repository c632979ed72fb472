// SPDX-License-Identifier: Apache-2.0
// Work in equal parts on all cores.
#pragma once

#include <cstddef>
#include <functional>

namespace ctxbroker::sample_host {

// Calls work(0) to work(count - 1), each once and in no order, on as many threads as this process
// has cores, and returns when all calls have ended. If one throws, calls that have not begun are
// left out, and its exception is thrown here. If the system gives no thread, the caller does it
// all.
void for_each_part(std::size_t count, const std::function<void(std::size_t)>& work);

// The same for rows of an image, in bands of some rows: work(first, end).
void for_each_band(std::size_t rows, const std::function<void(std::size_t, std::size_t)>& work);

}  // namespace ctxbroker::sample_host
