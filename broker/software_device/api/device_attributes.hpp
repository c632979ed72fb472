// SPDX-License-Identifier: Apache-2.0
// What cuDeviceGetAttribute answers.
#pragma once

#include <optional>

#include "api/device.hpp"

namespace ctxbroker::software {

// Nothing for a number that is no attribute.
std::optional<int> device_attribute(const Device& device, int attribute) noexcept;

// The device's place on a bus that does not exist: domain ffff, one device per slot.
inline constexpr int pci_domain = 0xffff, pci_bus = 0;

}  // namespace ctxbroker::software
