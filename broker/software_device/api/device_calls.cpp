// SPDX-License-Identifier: Apache-2.0
// cuDevice*, without the primary context.
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <string>

#include "api/device.hpp"
#include "api/device_attributes.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

// "ctxbroker software", then the ordinal: the same in every process.
void write_uuid(CUuuid* uuid, CUdevice ordinal) {
  find_device(ordinal);
  check_value(uuid != nullptr);
  std::memcpy(uuid->bytes, "ctxbroker softw", 15);
  uuid->bytes[15] = static_cast<char>(ordinal);
}

}  // namespace

CTXB_EXPORT CUresult cuDeviceGetCount(int* count) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(count != nullptr);
    *count = static_cast<int>(Process::instance().devices.size());
  });
}

CTXB_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(device != nullptr);
    *device = find_device(ordinal).ordinal;
  });
}

CTXB_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    const Device& found = find_device(device);
    check_value(name != nullptr && length > 0);
    // NVIDIA's driver writes 64 bytes, with zeros behind the name, or as many as fit.
    char all[64] = {};
    const auto written = std::min(sizeof all, static_cast<std::size_t>(length));
    std::snprintf(all, written, "%s", found.settings.name.c_str());
    std::memcpy(name, all, written);
  });
}

CTXB_EXPORT CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] { write_uuid(uuid, device); });
}

CTXB_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] { write_uuid(uuid, device); });
}

CTXB_EXPORT CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(bytes != nullptr);
    *bytes = find_device(device).settings.memory;
  });
}

CTXB_EXPORT CUresult cuDeviceTotalMem(unsigned int* bytes, CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(bytes != nullptr);
    *bytes =
        static_cast<unsigned>(std::min<std::size_t>(find_device(device).settings.memory, UINT_MAX));
  });
}

CTXB_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                                          CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(value != nullptr);
    auto found = device_attribute(find_device(device), static_cast<int>(attribute));
    check_value(found.has_value());
    *value = *found;
  });
}

CTXB_EXPORT CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    find_device(device);
    check_value(major != nullptr && minor != nullptr);
    *major = compute_capability() / 10;
    *minor = compute_capability() % 10;
  });
}

CTXB_EXPORT CUresult cuDeviceGetProperties(CUdevprop* properties, CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    find_device(device);
    check_value(properties != nullptr);
    *properties = {};
    properties->maxThreadsPerBlock = device_limits::max_threads;
    for (int i = 0; i < 3; ++i) {
      properties->maxThreadsDim[i] = static_cast<int>(device_limits::max_block[i]);
      properties->maxGridSize[i] = static_cast<int>(device_limits::max_grid[i]);
    }
    properties->sharedMemPerBlock = device_limits::shared_per_block;
    properties->totalConstantMemory = 65536;
    properties->SIMDWidth = 32;
    properties->memPitch = INT_MAX;
    properties->regsPerBlock = 65536;
    properties->clockRate = 1000000;
    properties->textureAlign = device_limits::alignment;
  });
}

CTXB_EXPORT CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    find_device(device);
    char id[16];
    int written =
        std::snprintf(id, sizeof id, "%04x:%02x:%02x.0", static_cast<unsigned>(pci_domain),
                      static_cast<unsigned>(pci_bus), static_cast<unsigned>(device));
    check_value(text != nullptr && length > written);
    std::memcpy(text, id, static_cast<std::size_t>(written) + 1);
  });
}

CTXB_EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* text) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(device != nullptr && text != nullptr);
    unsigned domain = 0, bus = 0, slot = 0, function = 0;
    int count =
        std::sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function);  // NOLINT(cert-err34-c)
    if (count < 3) {                                                        // without a domain
      domain = 0;
      count = std::sscanf(text, "%x:%x.%x", &bus, &slot, &function);  // NOLINT(cert-err34-c)
    }
    check_value(count >= 3);
    check_that(domain == pci_domain && bus == pci_bus && function == 0, CUDA_ERROR_INVALID_DEVICE);
    *device = find_device(static_cast<CUdevice>(slot)).ordinal;
  });
}

CTXB_EXPORT CUresult cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType type,
                                                    CUdevice device) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    find_device(device);
    check_value(supported != nullptr && type >= 0 && type < CU_EXEC_AFFINITY_TYPE_MAX);
    *supported = 0;
  });
}
