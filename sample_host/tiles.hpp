// SPDX-License-Identifier: Apache-2.0
// Renders an image by parts: what --tile asks for.
#pragma once

#include <cstddef>
#include <vector>

#include "ctxbroker/graph.hpp"
#include "engine.hpp"
#include "options.hpp"

namespace ctxbroker::sample_host {

// Bytes of a pixel at each port of the engine.
struct PixelBytes {
  std::vector<std::size_t> inputs, outputs;
};

// The largest part that any tile of such a job needs of an input, at least the tile itself. The
// instances' parameters count. Throws Error.
Size largest_part(Engine& engine, const JobInfo& job, const Size& tile);

// Runs the job for one tile after the other, with as many in flight as the graph takes. `whole` is
// the job's memory for whole images; an output may be an input. Throws Error.
void render_tiles(Engine& engine, const JobBuffers& whole, const JobInfo& job, const Size& tile,
                  const PixelBytes& bytes);

}  // namespace ctxbroker::sample_host
