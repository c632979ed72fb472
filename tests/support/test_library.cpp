// SPDX-License-Identifier: Apache-2.0
#include "support/test_library.hpp"

#include <cstdlib>
#include <string_view>

namespace ctxbroker {
namespace {

std::filesystem::path root() {
  return std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
}

}  // namespace

std::filesystem::path test_library(const std::string& name) {
  return root() / "test_plugins" / (name + ".so");
}

std::filesystem::path software_device_folder() {
  return root() / "lib/ctxbroker/software_device";
}

bool driver_is_software() {
  const char* choice = std::getenv("CTXBROKER_DRIVER");  // NOLINT(concurrency-mt-unsafe)
  return choice != nullptr && std::string_view(choice) == "software";
}

std::string why_no_runtime_library() {
  if (driver_is_software()) return "CUDA's runtime library needs NVIDIA's driver";
  if (!std::filesystem::exists(test_library("attacks_runtime_static")))
    return "the toolkit that this was built with has no static libcudart";
  return "";
}

std::string why_no_deep_binding() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "the sanitizers end a process that uses RTLD_DEEPBIND";
#else
  return "";
#endif
}

}  // namespace ctxbroker
