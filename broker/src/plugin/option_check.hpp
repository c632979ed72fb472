// SPDX-License-Identifier: Apache-2.0
// Whether what a host asks for can be meant: enumerators that exist, times that are not negative.
#pragma once

#include "ctxbroker/broker.hpp"

namespace ctxbroker::detail {

// Each throws Error that names the member. A time of more than a year becomes a year, so that it
// can be counted in nanoseconds.
BrokerOptions checked(BrokerOptions options);
void check(const TenantOptions& options);
void check(const InstanceOptions& options);
void check(const TimelineSink& sink);

}  // namespace ctxbroker::detail
