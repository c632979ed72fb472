// SPDX-License-Identifier: Apache-2.0
#include "context/shared_memory.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "observe/system_failure.hpp"

namespace ctxbroker::detail {
namespace {

using How = SharedMemory::How;

constexpr auto by_descriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
// A smaller allocation may lie in a block with others, which would be shared too.
constexpr std::uint64_t least_allocation = std::uint64_t{2} << 20;

// The content of the sealed file in memory to which the descriptor of allocated memory leads.
struct IpcFile {
  std::array<char, 16> magic;  // with the version of what follows
  CUuuid device;
  CUipcMemHandle memory;
};
constexpr std::array<char, 16> ipc_magic{"ctxbroker IPC 1"};
constexpr int all_seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

int write_ipc_file(const IpcFile& content) {
  const int file = memfd_create("ctxbroker-ipc", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file >= 0 && write(file, &content, sizeof content) == sizeof content &&
      fcntl(file, F_ADD_SEALS, all_seals) == 0) {
    return file;
  }
  const int why = errno;
  if (file >= 0) close(file);
  throw system_failure(
      why, "no descriptor of shared memory can be made: " + std::generic_category().message(why));
}

// Any process may have sent the descriptor. Only files in memory have seals, and reading these
// never waits.
std::optional<IpcFile> read_ipc_file(int descriptor, const struct stat& status) {
  IpcFile content{};
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & all_seals) != all_seals || status.st_size != sizeof content ||
      pread(descriptor, &content, sizeof content, 0) != sizeof content ||
      content.magic != ipc_magic) {
    return std::nullopt;
  }
  return content;
}

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
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, {handle_of(lease_)}};
    properties_.requestedHandleTypes = by_descriptor;
  }
  ~Maker() {
    if (made_.how != How::mapped) {
      if (made_.address != 0) end_shared_memory(driver_, made_);
      return;
    }
    if (is_mapped_) driver_.mem_unmap(made_.address, made_.bytes);
    if (made_.address != 0) driver_.mem_address_free(made_.address, made_.bytes);
    if (physical_ != 0) driver_.mem_release(physical_);
  }
  Maker(const Maker&) = delete;
  Maker& operator=(const Maker&) = delete;

  bool has_descriptors() const {
    int can = 0;
    const CUresult asked = driver_.device_get_attribute(
        &can, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, handle_of(lease_));
    return asked == CUDA_SUCCESS && can != 0;
  }

  void round_up(std::uint64_t bytes) {
    std::size_t unit = 0;
    check_call(driver_.mem_get_allocation_granularity(&unit, &properties_,
                                                      CU_MEM_ALLOC_GRANULARITY_MINIMUM),
               "cuMemGetAllocationGranularity", "the size of shared memory cannot be found out");
    round_up(bytes, unit);
  }
  void round_up(std::uint64_t bytes, std::uint64_t unit) {
    if (bytes > UINT64_MAX - unit) throw refusal(std::to_string(bytes) + " bytes are too many");
    made_.bytes = (bytes + unit - 1) / unit * unit;
  }

  void create() {
    take("cuMemCreate",
         [&] { return driver_.mem_create(&physical_, made_.bytes, &properties_, 0); });
  }

  void allocate() {
    made_.how = How::allocated;
    take("cuMemAlloc_v2", [&] { return driver_.mem_alloc(&made_.address, made_.bytes); });
    CUipcMemHandle handle{};
    const CUresult status = driver_.ipc_get_mem_handle(&handle, made_.address);
    if (status == CUDA_SUCCESS || loses_context(status)) {
      return check_call(status, "cuIpcGetMemHandle", "shared memory cannot be exported");
    }
    throw error(ErrorKind::lease_unavailable,
                "device " + std::to_string(lease_.device_ordinal()) +
                    " cannot share memory with other processes; copy through host memory",
                "cuIpcGetMemHandle", status);
  }

  void open(const IpcFile& file, const std::string& who, const std::string& too_small) {
    const CUuuid device = device_id();
    if (std::memcmp(&device, &file.device, sizeof device) != 0) {
      throw refusal(who + " is memory of another device; import it there");
    }
    made_.how = How::opened;
    check_suits(driver_.ipc_open_mem_handle(&made_.address, file.memory,
                                            CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                "cuIpcOpenMemHandle_v2",
                "the memory of " + who +
                    " cannot be opened; a process cannot import what it has made itself on this "
                    "device, or what another one has given back");
    CUdeviceptr base = 0;
    std::size_t size = 0;
    check_call(driver_.mem_get_address_range(&base, &size, made_.address),
               "cuMemGetAddressRange_v2", "the size of shared memory cannot be found out");
    if (made_.bytes > size - (made_.address - base)) throw refusal(too_small);
  }

  void import(int descriptor, const std::string& who) {
    void* const shareable = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
    check_suits(
        driver_.mem_import(&physical_, shareable, by_descriptor), "cuMemImportFromShareableHandle",
        who +
            " is not device memory that a driver has exported "
            "(DeviceMemory::export_descriptor, cuMemExportToShareableHandle) on a device of "
            "this process");
    CUmemAllocationProp found{};
    check_call(driver_.mem_get_properties(&found, physical_),
               "cuMemGetAllocationPropertiesFromHandle", "the imported memory cannot be looked at");
    if (found.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
        found.location.id == properties_.location.id) {
      return;
    }
    throw refusal(who + " is memory of device " + std::to_string(found.location.id) +
                  "; import it there");
  }

  void map(const std::string& wrong) {
    check_call(
        driver_.mem_address_reserve(&made_.address, made_.bytes, 0, 0, 0), "cuMemAddressReserve",
        "there are no addresses for " + std::to_string(made_.bytes) + " bytes of shared memory");
    check_suits(driver_.mem_map(made_.address, made_.bytes, 0, physical_, 0), "cuMemMap", wrong);
    is_mapped_ = true;
    const CUmemAccessDesc access{properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    check_call(driver_.mem_set_access(made_.address, made_.bytes, &access, 1), "cuMemSetAccess",
               "the device gets no access to shared memory");
  }

  // A mapping keeps the memory without its handle.
  SharedMemory keep() noexcept {
    if (physical_ != 0) driver_.mem_release(std::exchange(physical_, 0));
    is_mapped_ = false;
    return std::exchange(made_, {});
  }

  int export_from(CUdeviceptr address) {
    check_call(driver_.mem_retain(&physical_, reinterpret_cast<void*>(address)),
               "cuMemRetainAllocationHandle", "shared memory cannot be found again");
    int descriptor = -1;
    check_call(driver_.mem_export(&descriptor, physical_, by_descriptor, 0),
               "cuMemExportToShareableHandle", "shared memory cannot be exported");
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    return descriptor;
  }

  int export_allocated(CUdeviceptr address) {
    IpcFile file{ipc_magic, device_id(), {}};
    check_call(driver_.ipc_get_mem_handle(&file.memory, address), "cuIpcGetMemHandle",
               "shared memory cannot be exported");
    return write_ipc_file(file);
  }

  Error refusal(const std::string& why) const {
    return {ErrorKind::invalid_argument,
            why,
            {.device = lease_.device_ordinal(), .tenant = lease_.tenant().name}};
  }

 private:
  Error error(ErrorKind kind, const std::string& why, const char* call, CUresult status) const {
    return {kind,
            why,
            {.call = call,
             .status = static_cast<int>(status),
             .status_name = status_name(driver_, status),
             .device = lease_.device_ordinal(),
             .tenant = lease_.tenant().name}};
  }

  CUuuid device_id() {
    CUuuid id{};
    check_call(driver_.device_get_uuid(&id, handle_of(lease_)), "cuDeviceGetUuid_v2",
               "the device cannot be identified");
    return id;
  }

  // Once more when others have given some back.
  template <typename Try>
  void take(const char* call, const Try& try_it) {
    CUresult status = try_it();
    if (status == CUDA_ERROR_OUT_OF_MEMORY && lease_.device().relieve()) status = try_it();
    check_call(status, call,
               "cannot make shared memory of " + std::to_string(made_.bytes) + " bytes");
  }

  // Throws if the process has no free descriptor. A driver says only that something is short.
  static void check_descriptors(const std::string& doing) {
    const int tried = eventfd(0, EFD_CLOEXEC);
    if (tried < 0) {
      const int why = errno;
      throw system_failure(why, doing + ": " + std::generic_category().message(why));
    }
    close(tried);
  }

  // Nothing that the host may get wrong says anything about the lease.
  void check_call(CUresult status, const char* call, const std::string& doing) {
    if (loses_context(status)) lease_.report_status(status);
    if (status == CUDA_ERROR_OUT_OF_MEMORY || status == CUDA_ERROR_OPERATING_SYSTEM) {
      check_descriptors(doing);
    }
    check(driver_, status, call, lease_.owner(), [&] { return doing; });
  }

  // The same, for a call that fails if the caller's arguments are wrong.
  void check_suits(CUresult status, const char* call, const std::string& wrong) {
    if (status == CUDA_SUCCESS || loses_context(status) || status == CUDA_ERROR_OUT_OF_MEMORY) {
      return check_call(status, call, wrong);
    }
    throw error(ErrorKind::invalid_argument, wrong, call, status);
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
  if (maker.has_descriptors()) {
    maker.round_up(bytes);
    maker.create();
    maker.map("shared memory cannot be mapped");
  } else {
    maker.round_up(bytes, least_allocation);
    maker.allocate();
  }
  return maker.keep();
}

SharedMemory import_shared_memory(const std::shared_ptr<Lease>& lease, int descriptor,
                                  std::uint64_t bytes) {
  Maker maker(lease);
  const std::string who = "descriptor " + std::to_string(descriptor);
  const std::string too_small = "the memory of " + who + " is smaller than " +
                                std::to_string(bytes) +
                                " bytes; give the size that the other side has allocated";
  struct stat status {};
  if (fstat(descriptor, &status) != 0) throw maker.refusal(who + " is not open in this process");
  const auto file = maker.has_descriptors() ? std::nullopt : read_ipc_file(descriptor, status);
  if (file) {
    maker.round_up(bytes, least_allocation);
    maker.open(*file, who, too_small);
  } else {
    maker.import(descriptor, who);
    maker.round_up(bytes);
    maker.map(too_small);
  }
  return maker.keep();
}

int export_shared_memory(const std::shared_ptr<Lease>& lease, const SharedMemory& memory) {
  Maker maker(lease);
  return memory.how == How::allocated ? maker.export_allocated(memory.address)
                                      : maker.export_from(memory.address);
}

CUresult end_shared_memory(const DriverTable& driver, const SharedMemory& memory) noexcept {
  if (memory.how == How::allocated) return driver.mem_free(memory.address);
  if (memory.how == How::opened) return driver.ipc_close_mem_handle(memory.address);
  const CUresult unmapped = driver.mem_unmap(memory.address, memory.bytes);
  if (unmapped != CUDA_SUCCESS) return unmapped;
  return driver.mem_address_free(memory.address, memory.bytes);
}

}  // namespace ctxbroker::detail
