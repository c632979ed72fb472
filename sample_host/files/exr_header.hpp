// SPDX-License-Identifier: Apache-2.0
// What exr_read.cpp keeps of a header for exr_write.cpp.
#pragma once

#include <ImfHeader.h>

#include "files/image.hpp"

namespace ctxbroker::sample_host {

struct ExrHeader {
  Imf::Header header;
};

// Lets OpenEXR use several cores. Any thread.
void start_exr_threads();

}  // namespace ctxbroker::sample_host
