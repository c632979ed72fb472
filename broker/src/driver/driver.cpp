// SPDX-License-Identifier: Apache-2.0
#include "driver/driver.hpp"

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "ctxbroker/error.hpp"
#include "driver/driver_error.hpp"
#include "driver/driver_file.hpp"
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
  int mps = 0;  // a driver that does not know the attribute says 0 here
  if (driver.table.device_get_attribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED,
                                        driver.handles[ordinal]) == CUDA_SUCCESS) {
    info.mps = mps != 0;
  }
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
  check(driver.table, status, "cuInit", {},
        [&] { return "the " + what + " (" + file.path + ") cannot be initialised"; });
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
