// SPDX-License-Identifier: Apache-2.0
// Files beside this program.
#pragma once

#include <filesystem>
#include <string>

namespace ctxbroker {

std::filesystem::path test_library(const std::string& name);  // in test_plugins/, without ".so"
std::filesystem::path software_device_folder();  // it has the software device as libcuda.so.1
bool driver_is_software();                       // as CTXBROKER_DRIVER says

// Do libraries with NVIDIA's runtime library work here? Empty, or why not.
std::string why_no_runtime_library();
// And libraries that are opened with RTLD_DEEPBIND?
std::string why_no_deep_binding();

}  // namespace ctxbroker
