// SPDX-License-Identifier: Apache-2.0
// Checks that what a host asks for can be meant: enumerators that exist, times that are not
// negative, patterns that can match.
#pragma once

#include <string>

#include "ctxbroker/broker.hpp"

namespace ctxbroker::detail {

// Each throws Error that names the member. A time of more than a year becomes a year, so that it
// can be counted in nanoseconds.
BrokerOptions checked(BrokerOptions options);
void check(const TenantOptions& options);
// The name of a tenant that the host opens itself. A policy's patterns take fewer names.
void check_tenant_name(const std::string& name);
void check(const InstanceOptions& options);
void check(const TimelineSink& sink);

// Say in words why a pattern of a policy cannot have that text or that tenant: "is no pattern;
// ...". Empty: it can. They throw std::bad_alloc.
std::string why_no_match(const std::string& match);
std::string why_no_tenant(const std::string& tenant);

}  // namespace ctxbroker::detail
