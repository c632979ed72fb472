// SPDX-License-Identifier: Apache-2.0
// Advice about managed memory, and prefetches of it: cuMemAdvise, cuMemPrefetchAsync,
// cuMemDiscard*, cuMemRangeGetAttribute.
#include <sched.h>

#include <cstring>

#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/managed_advice.hpp"

using namespace ctxbroker::software;

namespace {

struct Range {
  std::shared_ptr<Block> block;
  std::size_t begin = 0, end = 0;  // in the block, bytes
};

// Managed memory; CUDA_ERROR_INVALID_VALUE.
Range managed_range(CUdeviceptr address, std::size_t bytes) {
  check_value(bytes != 0);
  std::shared_ptr<Block> block = Process::instance().memory.check_range(address, bytes);
  check_value(block->advice != nullptr);
  const std::size_t begin = address - block->begin;
  return {std::move(block), begin, begin + bytes};
}

// Checks the location and returns it in the form that is kept. A host location gets the number 0,
// because its number means nothing. The current NUMA node becomes a numbered one. Fails with
// CUDA_ERROR_INVALID_DEVICE or CUDA_ERROR_INVALID_VALUE.
CUmemLocation checked(CUmemLocation location) {
  switch (static_cast<int>(location.type)) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      find_device(location.id);
      return location;
    case CU_MEM_LOCATION_TYPE_HOST:
      return {CU_MEM_LOCATION_TYPE_HOST, 0};
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      check_value(location.id >= 0);
      return location;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: {
      unsigned node = 0;
      check_value(getcpu(nullptr, &node) == 0);
      return {CU_MEM_LOCATION_TYPE_HOST_NUMA, static_cast<int>(node)};
    }
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

// Returns the location that the first forms of the calls name by a device or CU_DEVICE_CPU.
CUmemLocation location_of(CUdevice device) {
  if (device == CU_DEVICE_CPU) return {CU_MEM_LOCATION_TYPE_HOST, 0};
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}

CUresult advise(CUdeviceptr address, std::size_t bytes, CUmem_advise advice,
                CUmemLocation location) {
  return working([&] {
    const Range range = managed_range(address, bytes);
    const bool by =
        advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    if (by || advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION) {
      // A prefetch to such a device is CUDA_ERROR_INVALID_DEVICE.
      check_value(location.type != CU_MEM_LOCATION_TYPE_DEVICE || is_device(location.id));
      location = checked(location);
    }
    check_value(!by || location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA);
    range.block->advice->advise(range.begin, range.end, advice, location);
  });
}

struct Prefetch {
  Range range;
  CUmemLocation to;
};

// A point in the stream: the memory is where it is needed already.
CUresult prefetch(CUstream stream, const std::function<std::vector<Prefetch>()>& make) {
  return initialised([&] {
    std::shared_ptr<Stream> found = find_stream(stream);
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    const std::vector<Prefetch> all = make();
    refuse_in_capture(*found, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    enqueue(found, std::make_shared<Command>());
    for (const Prefetch& one : all)
      one.range.block->advice->prefetched(one.range.begin, one.range.end, one.to);
  });
}

CUresult prefetch_one(CUdeviceptr address, std::size_t bytes, CUmemLocation location,
                      unsigned flags, CUstream stream) {
  return prefetch(stream, [&] {
    check_value(flags == 0);
    return std::vector<Prefetch>{{managed_range(address, bytes), checked(location)}};
  });
}

template <class Value>
void give(void* target, std::size_t size, Value value) {
  check_value(size == sizeof value);
  std::memcpy(target, &value, sizeof value);
}

// Returns the location as the older attributes report it: a device, CU_DEVICE_CPU or
// CU_DEVICE_INVALID.
CUdevice device_of(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return location.id;
  return location.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
}

void tell(const ManagedAdvice::Answer& answer, CUmem_range_attribute attribute, void* target,
          std::size_t size) {
  check_value(target != nullptr);
  switch (static_cast<int>(attribute)) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      return give<int>(target, size, answer.read_mostly);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      return give<int>(target, size, device_of(answer.preferred));
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      return give<int>(target, size, device_of(answer.prefetched));
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      check_value(size != 0 && size % sizeof(int) == 0);
      std::vector<int> devices(answer.accessed_by.begin(), answer.accessed_by.end());
      devices.resize(size / sizeof(int), CU_DEVICE_INVALID);
      std::memcpy(target, devices.data(), size);
      return;
    }
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      return give(target, size, answer.preferred.type);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      return give<int>(target, size, answer.preferred.id);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      return give(target, size, answer.prefetched.type);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      return give<int>(target, size, answer.prefetched.id);
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

}  // namespace

CTXB_EXPORT CUresult cuMemAdvise(CUdeviceptr address, std::size_t bytes, CUmem_advise advice,
                                 CUdevice device) {
  CTXB_COUNT_CALL();
  return advise(address, bytes, advice, location_of(device));
}
CTXB_EXPORT CUresult cuMemAdvise_v2(CUdeviceptr address, std::size_t bytes, CUmem_advise advice,
                                    CUmemLocation location) {
  CTXB_COUNT_CALL();
  return advise(address, bytes, advice, location);
}

CTXB_EXPORT_PTSZ(cuMemPrefetchAsync,
                 (CUdeviceptr address, std::size_t bytes, CUdevice device, CUstream stream),
                 prefetch_one(address, bytes, location_of(device), 0, stream))
CTXB_EXPORT_PTSZ(cuMemPrefetchAsync_v2,
                 (CUdeviceptr address, std::size_t bytes, CUmemLocation location,
                  unsigned int flags, CUstream stream),
                 prefetch_one(address, bytes, location, flags, stream))

CTXB_EXPORT CUresult cuMemRangeGetAttribute(void* target, std::size_t size,
                                            CUmem_range_attribute attribute, CUdeviceptr address,
                                            std::size_t bytes) {
  CTXB_COUNT_CALL();
  return working([&] {
    const Range range = managed_range(address, bytes);
    tell(range.block->advice->ask(range.begin, range.end), attribute, target, size);
  });
}

CTXB_EXPORT CUresult cuMemRangeGetAttributes(void** targets, std::size_t* sizes,
                                             CUmem_range_attribute* attributes, std::size_t count,
                                             CUdeviceptr address, std::size_t bytes) {
  CTXB_COUNT_CALL();
  return working([&] {
    check_value(targets != nullptr && sizes != nullptr && attributes != nullptr && count != 0);
    const Range range = managed_range(address, bytes);
    const ManagedAdvice::Answer answer = range.block->advice->ask(range.begin, range.end);
    for (std::size_t i = 0; i < count; ++i) tell(answer, attributes[i], targets[i], sizes[i]);
  });
}

#if CUDA_VERSION >= 13000
namespace {

struct Batch {
  const CUdeviceptr* addresses;
  const std::size_t* sizes;
  std::size_t count;
  unsigned long long flags;

  std::vector<Range> ranges() const {
    if (addresses == nullptr || sizes == nullptr) fail(CUDA_ERROR_INVALID_VALUE);
    check_value(count != 0 && flags == 0);
    std::vector<Range> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(managed_range(addresses[i], sizes[i]));
    return all;
  }
};

struct Places {
  const CUmemLocation* locations;
  const std::size_t* firsts;  // that each is for
  std::size_t count;
};

std::vector<Prefetch> prefetches(const Batch& batch, const Places& places) {
  check_value(places.locations != nullptr && places.firsts != nullptr && places.count != 0 &&
              places.count <= batch.count && places.firsts[0] == 0);
  std::vector<Prefetch> all;
  for (Range& range : batch.ranges()) all.push_back({std::move(range), {}});
  for (std::size_t i = 0; i < places.count; ++i) {
    const std::size_t end = i + 1 < places.count ? places.firsts[i + 1] : batch.count;
    check_value(places.firsts[i] < end && end <= batch.count);
    for (std::size_t at = places.firsts[i]; at < end; ++at)
      all[at].to = checked(places.locations[i]);
  }
  return all;
}

CUresult prefetch_batch(const Batch& batch, const Places& places, CUstream stream) {
  return prefetch(stream, [&] {
    check_value(stream != nullptr && stream != CU_STREAM_LEGACY);
    return prefetches(batch, places);
  });
}

// Enqueues a fill of the discarded memory with the byte of memory that was never written, so that a
// program that reads it is noticed.
CUresult discard(const Batch& batch, CUstream stream) {
  return initialised([&] {
    check_value(stream != nullptr && stream != CU_STREAM_LEGACY);
    std::shared_ptr<Stream> found = find_stream(stream);
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    std::vector<Range> ranges = batch.ranges();
    refuse_in_capture(*found, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    auto command = std::make_shared<Command>();
    command->kind = Command::Kind::transfer;
    command->work = [ranges = std::move(ranges)] {
      for (const Range& range : ranges)
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        std::memset(reinterpret_cast<void*>(range.block->begin + range.begin), undefined_byte,
                    range.end - range.begin);
      return CUDA_SUCCESS;
    };
    enqueue(found, command);
  });
}

CUresult discard_and_prefetch(const Batch& batch, const Places& places, CUstream stream) {
  const CUresult status = working([&] { prefetches(batch, places); });  // all or nothing
  if (status != CUDA_SUCCESS) return status;
  const CUresult discarded = discard(batch, stream);
  return discarded != CUDA_SUCCESS ? discarded : prefetch_batch(batch, places, stream);
}

}  // namespace

CTXB_EXPORT_PTSZ(cuMemPrefetchBatchAsync,
                 (CUdeviceptr * addresses, std::size_t* sizes, std::size_t count,
                  CUmemLocation* locations, std::size_t* firsts, std::size_t location_count,
                  unsigned long long flags, CUstream stream),
                 prefetch_batch({addresses, sizes, count, flags},
                                {locations, firsts, location_count}, stream))
CTXB_EXPORT_PTSZ(cuMemDiscardBatchAsync,
                 (CUdeviceptr * addresses, std::size_t* sizes, std::size_t count,
                  unsigned long long flags, CUstream stream),
                 discard({addresses, sizes, count, flags}, stream))
CTXB_EXPORT_PTSZ(cuMemDiscardAndPrefetchBatchAsync,
                 (CUdeviceptr * addresses, std::size_t* sizes, std::size_t count,
                  CUmemLocation* locations, std::size_t* firsts, std::size_t location_count,
                  unsigned long long flags, CUstream stream),
                 discard_and_prefetch({addresses, sizes, count, flags},
                                      {locations, firsts, location_count}, stream))
#endif
