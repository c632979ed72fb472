// SPDX-License-Identifier: Apache-2.0
#include "driver/driver_error.hpp"

#include <algorithm>
#include <array>

namespace ctxbroker::detail {
namespace {

constexpr std::array process_faults{
    CUDA_ERROR_ILLEGAL_ADDRESS,      CUDA_ERROR_LAUNCH_FAILED,
    CUDA_ERROR_LAUNCH_TIMEOUT,       CUDA_ERROR_ASSERT,
    CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUDA_ERROR_MISALIGNED_ADDRESS,   CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUDA_ERROR_INVALID_PC,           CUDA_ERROR_ECC_UNCORRECTABLE};

std::string from_driver(CUresult(CUDAAPI* function)(CUresult, const char**), CUresult status) {
  const char* text = nullptr;
  if (function == nullptr || function(status, &text) != CUDA_SUCCESS || text == nullptr) return {};
  return text;
}

// "out of memory", and for a fault its details.
std::string status_words(const DriverTable& driver, CUresult status) {
  std::string words = from_driver(driver.get_error_string, status);
  if (!is_process_fault(status)) return words;
  const std::string details = fault_details(driver).text;
  return words.empty() || details.empty() ? words + details : words + ": " + details;
}

}  // namespace

FaultDetails fault_details(const DriverTable& driver) {
  const char* text = "";
  const char* owner = nullptr;
  if (driver.software_fault == nullptr) return {};
  driver.software_fault(&text, &owner);
  return {text, owner};
}

std::string status_name(const DriverTable& driver, CUresult status) {
  std::string name = from_driver(driver.get_error_name, status);
  if (name.empty()) name = "CUDA error " + std::to_string(static_cast<int>(status));
  return name;
}

std::string status_text(const DriverTable& driver, CUresult status) {
  const std::string name = status_name(driver, status);
  const std::string words = status_words(driver, status);
  return words.empty() ? name : name + " (" + words + ")";
}

bool is_process_fault(CUresult status) noexcept {
  return std::find(process_faults.begin(), process_faults.end(), status) != process_faults.end();
}

bool loses_context(CUresult status) noexcept {
  return status == CUDA_ERROR_CONTEXT_IS_DESTROYED || is_process_fault(status);
}

ErrorKind kind_of(CUresult status) noexcept {
  if (loses_context(status)) return ErrorKind::context_lost;
  switch (status) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ErrorKind::out_of_memory;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
      return ErrorKind::no_device;
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
      return ErrorKind::kernel_image;
    default:
      return ErrorKind::driver_call;
  }
}

Error driver_error(const DriverTable& driver, CUresult status, const char* call,
                   const std::string& doing, CallOwner owner) {
  const std::string words = status_words(driver, status);
  return {kind_of(status),
          words.empty() ? doing : doing + ": " + words,
          {.call = call,
           .status = static_cast<int>(status),
           .status_name = status_name(driver, status),
           .device = owner.device,
           .tenant = std::string(owner.tenant)}};
}

}  // namespace ctxbroker::detail
