// SPDX-License-Identifier: Apache-2.0
// The loads themselves; see load.hpp.
#pragma once

#include "qos/load.hpp"

namespace ctxbroker::bench::neighbour {

void hog_10us(LoadContext& context);
void hog_100us(LoadContext& context);
void hog_2ms(LoadContext& context);
void bandwidth(LoadContext& context);
void launch_flood(LoadContext& context);
void allocation(LoadContext& context);
void pinned(LoadContext& context);
void module(LoadContext& context);
void reset(LoadContext& context);

}  // namespace ctxbroker::bench::neighbour
