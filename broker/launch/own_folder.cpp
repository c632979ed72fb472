// SPDX-License-Identifier: Apache-2.0
#include "own_folder.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "exit_code.hpp"

namespace ctxbroker::launch {

std::string own_folder() {
  Dl_info info{};
  // By its name, because the address of a function may be one in the program itself.
  const void* const inside = dlsym(RTLD_DEFAULT, "ctxb_version");
  if (inside == nullptr || dladdr(inside, &info) == 0 || info.dli_fname == nullptr) {
    throw Failure(ExitCode::failed, "the system's loader does not say where libctxbroker.so lies");
  }
  std::error_code error;
  const auto library = std::filesystem::canonical(info.dli_fname, error);
  if (error) throw Failure(ExitCode::failed, std::string(info.dli_fname) + ": " + error.message());
  return (library.parent_path() / "ctxbroker").string();
}

}  // namespace ctxbroker::launch
