// SPDX-License-Identifier: Apache-2.0
// "Did you mean ...?"
#pragma once

#include "text/suggestion.hpp"

namespace ctxbroker::sample_host {

using detail::edit_distance;
using detail::join;
using detail::nearest;

}  // namespace ctxbroker::sample_host
