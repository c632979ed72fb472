// SPDX-License-Identifier: Apache-2.0
#include "context/shared_memory.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <string>
#include <utility>

namespace ctxbroker::detail {
namespace {

constexpr auto by_descriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUdevice handle_of(const Lease& lease) {
  return lease.driver().handles[static_cast<std::size_t>(lease.device_ordinal())];
}

// The calls that make one, inside the lease. What was made ends with this, unless it is kept.
class Maker {
 public:
  explicit Maker(const std::shared_ptr<Lease>& lease)
      : lease_(*lease), driver_(lease->table()), guard_(lease->target()) {
    if (guard_.status() != CUDA_SUCCESS) {
      lease_.report_status(guard_.status());
      throw lease_.entry_error(guard_.status(), "the lease cannot be entered");
    }
    must_be_supported();
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, {handle_of(lease_)}};
    properties_.requestedHandleTypes = by_descriptor;
  }
  ~Maker() {
    if (is_mapped_) driver_.mem_unmap(made_.address, made_.bytes);
    if (made_.address != 0) driver_.mem_address_free(made_.address, made_.bytes);
    if (physical_ != 0) driver_.mem_release(physical_);
  }
  Maker(const Maker&) = delete;
  Maker& operator=(const Maker&) = delete;

  void round_up(std::uint64_t bytes) {
    std::size_t unit = 0;
    must(driver_.mem_get_allocation_granularity(&unit, &properties_,
                                                CU_MEM_ALLOC_GRANULARITY_MINIMUM),
         "cuMemGetAllocationGranularity", "the size of shared memory cannot be found out");
    if (bytes > UINT64_MAX - unit) throw refusal(std::to_string(bytes) + " bytes are too many");
    made_.bytes = (bytes + unit - 1) / unit * unit;
  }

  void create() {
    const auto try_it = [&] {
      return driver_.mem_create(&physical_, made_.bytes, &properties_, 0);
    };
    CUresult status = try_it();
    if (status == CUDA_ERROR_OUT_OF_MEMORY && lease_.device().relieve()) status = try_it();
    must(status, "cuMemCreate",
         "cannot make shared memory of " + std::to_string(made_.bytes) + " bytes");
  }

  void import(int descriptor) {
    const std::string who = "descriptor " + std::to_string(descriptor);
    struct stat file {};
    if (fstat(descriptor, &file) != 0) throw refusal(who + " is not open in this process");
    void* const shareable = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
    must_suit(driver_.mem_import(&physical_, shareable, by_descriptor),
              "cuMemImportFromShareableHandle",
              who +
                  " is not device memory that a driver has exported "
                  "(cuMemExportToShareableHandle) on a device of this process");
    CUmemAllocationProp found{};
    must(driver_.mem_get_properties(&found, physical_), "cuMemGetAllocationPropertiesFromHandle",
         "the imported memory cannot be looked at");
    if (found.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        found.location.id == properties_.location.id) {
      return;
    }
    throw refusal(who + " is memory of device " + std::to_string(found.location.id) +
                  "; import it there");
  }

  void map(const std::string& wrong) {
    must(driver_.mem_address_reserve(&made_.address, made_.bytes, 0, 0, 0), "cuMemAddressReserve",
         "there are no addresses for " + std::to_string(made_.bytes) + " bytes of shared memory");
    must_suit(driver_.mem_map(made_.address, made_.bytes, 0, physical_, 0), "cuMemMap", wrong);
    is_mapped_ = true;
    const CUmemAccessDesc access{properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    must(driver_.mem_set_access(made_.address, made_.bytes, &access, 1), "cuMemSetAccess",
         "the device gets no access to shared memory");
  }

  // The mapping keeps the memory without its handle.
  SharedMemory keep() noexcept {
    driver_.mem_release(std::exchange(physical_, 0));
    is_mapped_ = false;
    return std::exchange(made_, {});
  }

  int export_from(CUdeviceptr address) {
    must(driver_.mem_retain(&physical_, reinterpret_cast<void*>(address)),
         "cuMemRetainAllocationHandle", "shared memory cannot be found again");
    int descriptor = -1;
    must(driver_.mem_export(&descriptor, physical_, by_descriptor, 0),
         "cuMemExportToShareableHandle", "shared memory cannot be exported");
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    return descriptor;
  }

  std::uint64_t bytes() const noexcept { return made_.bytes; }

 private:
  Error refusal(const std::string& why) const {
    return {ErrorKind::invalid_argument,
            why,
            {.device = lease_.device_ordinal(), .tenant = lease_.tenant().name}};
  }

  void must_be_supported() const {
    int can = 0;
    const CUresult asked = driver_.device_get_attribute(
        &can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, handle_of(lease_));
    if (asked == CUDA_SUCCESS && can != 0) return;
    throw Error(ErrorKind::lease_unavailable,
                "device " + std::to_string(lease_.device_ordinal()) +
                    " cannot share memory by file descriptor; copy through host memory",
                {.device = lease_.device_ordinal(), .tenant = lease_.tenant().name});
  }

  // Nothing that the host may get wrong says anything about the lease.
  void must(CUresult status, const char* call, const std::string& doing) {
    if (loses_context(status)) lease_.report_status(status);
    check(driver_, status, call, lease_.owner(), [&] { return doing; });
  }

  // The same, for a call that fails if the caller's arguments are wrong.
  void must_suit(CUresult status, const char* call, const std::string& wrong) {
    if (status == CUDA_SUCCESS || loses_context(status) || status == CUDA_ERROR_OUT_OF_MEMORY) {
      return must(status, call, wrong);
    }
    throw Error(ErrorKind::invalid_argument, wrong,
                {.call = call,
                 .status = static_cast<int>(status),
                 .status_name = status_name(driver_, status),
                 .device = lease_.device_ordinal(),
                 .tenant = lease_.tenant().name});
  }

  Lease& lease_;
  const DriverTable& driver_;
  const ContextGuard guard_;
  CUmemAllocationProp properties_{};
  CUmemGenericAllocationHandle physical_ = 0;
  SharedMemory made_;
  bool is_mapped_ = false;
};

}  // namespace

SharedMemory make_shared_memory(const std::shared_ptr<Lease>& lease, std::uint64_t bytes) {
  Maker maker(lease);
  maker.round_up(bytes);
  maker.create();
  maker.map("shared memory cannot be mapped");
  return maker.keep();
}

SharedMemory import_shared_memory(const std::shared_ptr<Lease>& lease, int descriptor,
                                  std::uint64_t bytes) {
  Maker maker(lease);
  maker.round_up(bytes);
  maker.import(descriptor);
  maker.map("the memory of descriptor " + std::to_string(descriptor) + " has not " +
            std::to_string(maker.bytes()) +
            " bytes; give the size that the other side has allocated");
  return maker.keep();
}

int export_shared_memory(const std::shared_ptr<Lease>& lease, CUdeviceptr address) {
  return Maker(lease).export_from(address);
}

CUresult end_shared_memory(const DriverTable& driver, const SharedMemory& memory) noexcept {
  const CUresult unmapped = driver.mem_unmap(memory.address, memory.bytes);
  const CUresult freed = driver.mem_address_free(memory.address, memory.bytes);
  return unmapped != CUDA_SUCCESS ? unmapped : freed;
}

}  // namespace ctxbroker::detail
