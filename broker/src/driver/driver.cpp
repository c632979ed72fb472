// SPDX-License-Identifier: Apache-2.0
#include "driver/driver.hpp"

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "ctxbroker/error.hpp"
#include "driver/driver_error.hpp"
#include "driver/driver_file.hpp"
#include "driver/host_location.hpp"
#include "observe/enum_names.hpp"
#include "process/environment.hpp"

namespace ctxbroker {
namespace {

constexpr std::array choice_names{"auto", "nvidia", "software"};  // in the order of DriverChoice

}  // namespace

const char* to_string(DriverChoice choice) noexcept {
  return detail::name_of(choice_names, choice);
}

std::optional<DriverChoice> parse_driver_choice(std::string_view text) noexcept {
  return detail::value_of<DriverChoice>(choice_names, text);
}

namespace detail {
namespace {

constexpr bool mandatory = true;
constexpr bool optional = false;

template <typename Function>
void take(Function*& member, const char* symbol, bool needed, void* library, SymbolLookup lookup,
          std::vector<std::string>& missing) {
  member = reinterpret_cast<Function*>(lookup(library, symbol));
  if (member == nullptr && needed) missing.emplace_back(symbol);
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

int attribute(const Driver& driver, int ordinal, CUdevice_attribute which) {
  int value = 0;
  check(driver.table, driver.table.device_get_attribute(&value, which, driver.handles[ordinal]),
        "cuDeviceGetAttribute", {.device = ordinal},
        [&] { return "cannot read attribute " + std::to_string(which) + " of the device"; });
  return value;
}

DeviceInfo read_device(const Driver& driver, int ordinal) {
  char name[256] = {};
  check(driver.table, driver.table.device_get_name(name, sizeof name - 1, driver.handles[ordinal]),
        "cuDeviceGetName", {.device = ordinal}, [] { return "cannot read the device's name"; });
  size_t bytes = 0;
  check(driver.table, driver.table.device_total_mem(&bytes, driver.handles[ordinal]),
        "cuDeviceTotalMem_v2", {.device = ordinal}, [] { return "cannot read the memory size"; });
  DeviceInfo info;
  info.ordinal = ordinal;
  info.name = name;
  info.compute_major = attribute(driver, ordinal, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  info.compute_minor = attribute(driver, ordinal, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.multiprocessors = attribute(driver, ordinal, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.memory_bytes = bytes;
  // A driver that does not know such an attribute says 0 here.
  const auto has = [&](CUdevice_attribute which) {
    int value = 0;
    return driver.table.device_get_attribute(&value, which, driver.handles[ordinal]) ==
               CUDA_SUCCESS &&
           value != 0;
  };
  info.mps = has(CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
  info.memory_pools = has(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  info.pinned_pools = find_host_location(driver.table, driver.handles[ordinal]).has_value();
  return info;
}

DeviceLimits read_limits(const Driver& driver, int ordinal) {
  const auto read = [&](CUdevice_attribute which) {
    return static_cast<unsigned int>(attribute(driver, ordinal, which));
  };
  DeviceLimits limits;
  limits.grid[0] = read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  limits.grid[1] = read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  limits.grid[2] = read(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  limits.block[0] = read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  limits.block[1] = read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  limits.block[2] = read(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  limits.block_threads = read(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  limits.shared_bytes = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  limits.shared_optin_bytes = read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  limits.cooperative = read(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) != 0;
  limits.clusters = read(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH) != 0;
  return limits;
}

// What to tell who has no such driver, and who has one without a device.
struct Help {
  std::string no_file, no_device;
};

// Statuses of cuInit that say something about the machine, and what helps. In the order of their
// numbers.
struct InitRemedy {
  CUresult status;
  const char* text;
};
constexpr InitRemedy init_remedies[] = {
    {CUDA_ERROR_STUB_LIBRARY,
     "the file is the toolkit's stub, which is for linking only: take its folder (.../stubs) out "
     "of LD_LIBRARY_PATH and of run paths, and install NVIDIA's driver"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE,
     "another process has the GPU for itself: end it, or set the GPU's compute mode to Default "
     "(nvidia-smi -c 0)"},
    {CUDA_ERROR_OPERATING_SYSTEM,
     "the system refuses the GPU: look at who may open /dev/nvidia*, at the container's options "
     "(--gpus), and at dmesg"},
    {CUDA_ERROR_SYSTEM_NOT_READY,
     "a service that the GPUs need does not run: start nvidia-fabricmanager, of the driver's "
     "version"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
     "the driver's library and its kernel module are of different versions, as after an update of "
     "the driver: reboot; in a container, start it again, because both come from the host"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
     "a forward-compatibility library is found before the driver's own, and this GPU does not "
     "support it: remove the package cuda-compat, or take its folder out of LD_LIBRARY_PATH"},
    {CUDA_ERROR_UNKNOWN,
     "the kernel module is often in a bad state then, as after a suspend: reload it (sudo rmmod "
     "nvidia_uvm && sudo modprobe nvidia_uvm) or reboot, and look at dmesg"},
};

std::string remedy_for(CUresult status) {
  for (const InitRemedy& one : init_remedies) {
    if (one.status == status) return std::string("; ") + one.text;
  }
  return "; nvidia-smi and dmesg may say more";
}

// Loads and initialises one file, and reads its devices.
Driver open_file(DriverChoice kind, const std::filesystem::path& name, DriverLoader load,
                 const Help& help) {
  const LoadedFile file = load(name);
  const std::string what = kind == DriverChoice::nvidia ? "NVIDIA driver" : "software device";
  if (file.handle == nullptr) {
    throw Error(ErrorKind::no_driver, "no " + what + ": " + file.error + help.no_file,
                {.call = "dlopen"});
  }
  Driver driver;
  driver.info.kind = kind;
  driver.info.path = file.path;
  const auto missing = fill(driver.table, file.handle, find_symbol);
  if (!missing.empty()) {
    throw Error(ErrorKind::no_driver, file.path + " cannot be used as a driver: it lacks " +
                                          join(missing) +
                                          "; a driver for CUDA 12.4 or later is needed");
  }
  CUresult status = driver.table.init(0);
  if (status == CUDA_ERROR_NO_DEVICE) {
    throw driver_error(driver.table, status, "cuInit",
                       "the " + what + " (" + file.path + ") has no device" + help.no_device, {});
  }
  if (status != CUDA_SUCCESS) {
    const std::string words = status_text(driver.table, status);
    throw Error(kind_of(status),
                "the " + what + " (" + file.path + ") cannot be initialised: " + words +
                    (kind == DriverChoice::nvidia ? remedy_for(status) : ""),
                {.call = "cuInit",
                 .status = static_cast<int>(status),
                 .status_name = status_name(driver.table, status)});
  }
  check(driver.table, driver.table.driver_get_version(&driver.info.version), "cuDriverGetVersion",
        {}, [] { return "cannot read the driver's version"; });
  int count = 0;
  check(driver.table, driver.table.device_get_count(&count), "cuDeviceGetCount", {},
        [] { return "cannot count the devices"; });
  if (count <= 0) {
    throw Error(ErrorKind::no_device,
                "the " + what + " (" + file.path + ") has no device" + help.no_device);
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice handle = 0;
    check(driver.table, driver.table.device_get(&handle, ordinal), "cuDeviceGet",
          {.device = ordinal}, [] { return "cannot get the device"; });
    driver.handles.push_back(handle);
    driver.devices.push_back(read_device(driver, ordinal));
    driver.limits.push_back(read_limits(driver, ordinal));
  }
  return driver;
}

Driver open_nvidia(DriverLoader load, const Help& help) {
  return open_file(DriverChoice::nvidia, nvidia_driver_name(), load, help);
}

Driver open_software(const std::filesystem::path& file, DriverLoader load) {
  return open_file(DriverChoice::software, file.empty() ? default_software_device() : file, load,
                   {"; it is part of ctxbroker and stands beside its library: install it again",
                    "; CTXBROKER_SOFTWARE_DEVICES sets how many it has"});
}

Driver open_automatic(const DriverRequest& request, std::string& reason) {
  std::string without;
  try {
    Driver driver = open_nvidia(request.load, {});
    reason = "an NVIDIA driver with a device is installed";
    return driver;
  } catch (const Error& error) {
    without = error.message();
  }
  try {
    Driver driver = open_software(request.software_device, request.load);
    reason = without;
    return driver;
  } catch (const Error& error) {
    throw Error(error.kind(), without + "; and " + error.message(), error.origin());
  }
}

}  // namespace

std::vector<std::string> fill(DriverTable& table, void* library, SymbolLookup lookup) {
  std::vector<std::string> missing;
#define CTXB_ENTRY(member, symbol, need, parameters) \
  take(table.member, symbol, need, library, lookup, missing);
#include "driver/entry_points.def"
#undef CTXB_ENTRY
  return missing;
}

ChosenDriver choose_driver(std::optional<DriverChoice> option, const char* environment) {
  if (option) return {*option, std::string("the host asked for ") + to_string(*option)};
  if (environment == nullptr || *environment == '\0') {
    return {DriverChoice::automatic, "automatic choice"};
  }
  const auto choice = parse_driver_choice(environment);
  if (!choice) {
    throw Error(ErrorKind::driver_choice,
                std::string("CTXBROKER_DRIVER is \"") + environment +
                    "\", which names no driver; set it to auto, nvidia or software, or unset it");
  }
  return {*choice, std::string("CTXBROKER_DRIVER=") + environment};
}

Driver open_driver(const DriverRequest& request) {
  // A plug-in of a broker that is open already may have changed the process's own.
  const std::optional<std::string> named = kept_variable("CTXBROKER_DRIVER");
  ChosenDriver chosen = choose_driver(request.choice, named ? named->c_str() : nullptr);
  Driver driver;
  const std::string other =
      request.choice ? "let the host choose the software device, because its choice counts more "
                       "than CTXBROKER_DRIVER (sample_host: --driver software)"
                     : "choose the software device with CTXBROKER_DRIVER=software";
  switch (chosen.choice) {
    case DriverChoice::nvidia:
      driver = open_nvidia(request.load,
                           {"; install NVIDIA's driver and check it with nvidia-smi, or " + other,
                            "; check it with nvidia-smi, or " + other});
      break;
    case DriverChoice::software:
      driver = open_software(request.software_device, request.load);
      break;
    case DriverChoice::automatic:
      driver = open_automatic(request, chosen.reason);
      break;
  }
  driver.info.reason = std::move(chosen.reason);
  return driver;
}

}  // namespace detail
}  // namespace ctxbroker
