// SPDX-License-Identifier: Apache-2.0
#include "module/runtime_compiler.hpp"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ctxbroker/error.hpp"
#include "process/environment.hpp"

namespace ctxbroker::detail {
namespace {

// NVRTC's functions by its own interface, which has not changed since CUDA 8; 0 is success.
using Program = struct OpaqueProgram*;
struct Compiler {
  int (*version)(int* major, int* minor) = nullptr;
  const char* (*error_string)(int status) = nullptr;
  int (*architecture_count)(int* count) = nullptr;
  int (*architectures)(int* all) = nullptr;
  int (*create)(Program* program, const char* text, const char* name, int header_count,
                const char* const* headers, const char* const* header_names) = nullptr;
  int (*destroy)(Program* program) = nullptr;
  int (*compile)(Program program, int option_count, const char* const* options) = nullptr;
  int (*ptx_size)(Program program, std::size_t* bytes) = nullptr;
  int (*ptx)(Program program, char* text) = nullptr;
  int (*log_size)(Program program, std::size_t* bytes) = nullptr;
  int (*log)(Program program, char* text) = nullptr;
};

bool fill(Compiler& compiler, void* library) {
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  return find(compiler.version, "nvrtcVersion") &&
         find(compiler.error_string, "nvrtcGetErrorString") &&
         find(compiler.architecture_count, "nvrtcGetNumSupportedArchs") &&
         find(compiler.architectures, "nvrtcGetSupportedArchs") &&
         find(compiler.create, "nvrtcCreateProgram") &&
         find(compiler.destroy, "nvrtcDestroyProgram") &&
         find(compiler.compile, "nvrtcCompileProgram") &&
         find(compiler.ptx_size, "nvrtcGetPTXSize") && find(compiler.ptx, "nvrtcGetPTX") &&
         find(compiler.log_size, "nvrtcGetProgramLogSize") &&
         find(compiler.log, "nvrtcGetProgramLog");
}

// Loaded once, and for good; looked for again as long as it is not there.
const Compiler& compiler_for(int cuda_version, const std::string& who) {
  static std::mutex mutex;
  static std::map<std::string, Compiler> found;  // by file name or path
  const std::lock_guard lock(mutex);
  std::string looked_for;
  for (const std::string& candidate : compiler_candidates(cuda_version)) {
    if (const auto known = found.find(candidate); known != found.end()) return known->second;
    looked_for += (looked_for.empty() ? "" : ", ") + candidate;
    void* const library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    Compiler compiler;
    if (fill(compiler, library)) return found[candidate] = compiler;
    dlclose(library);
  }
  throw Error(
      ErrorKind::kernel_image,
      who +
          " cannot be loaded: it is CUDA C++, and NVIDIA's run-time compiler is not on "
          "this machine (looked for: " +
          looked_for +
          "); install NVRTC of CUDA 12 or 13, or say where it is with CUDA_HOME (the toolkit) or "
          "CTXBROKER_NVRTC (the library)");
}

// The best that the compiler knows and the device can run.
int architecture_for(const Compiler& compiler, int compute_capability, const std::string& who) {
  int count = 0;
  std::vector<int> known;
  if (compiler.architecture_count(&count) == 0 && count > 0) {
    known.resize(static_cast<std::size_t>(count));
    if (compiler.architectures(known.data()) != 0) known.clear();
  }
  int best = 0, least = 0;
  for (const int one : known) {
    if (one <= compute_capability && one > best) best = one;
    if (least == 0 || one < least) least = one;
  }
  if (best != 0) return best;
  int major = 0, minor = 0;
  compiler.version(&major, &minor);
  throw Error(ErrorKind::kernel_image,
              who + " cannot be loaded: NVRTC " + std::to_string(major) + "." +
                  std::to_string(minor) + " compiles for compute capability " +
                  std::to_string(least / 10) + "." + std::to_string(least % 10) +
                  " and up, the device has " + std::to_string(compute_capability / 10) + "." +
                  std::to_string(compute_capability % 10) + "; install an older NVRTC");
}

using Size = int (*)(Program, std::size_t*);
using Take = int (*)(Program, char*);

// Text of the program, without its ending 0.
std::string take(Program program, Size size, Take copy) {
  std::size_t bytes = 0;
  if (size(program, &bytes) != 0 || bytes == 0) return {};
  std::string text(bytes, '\0');
  if (copy(program, text.data()) != 0) return {};
  text.resize(text.find_last_not_of(std::string_view("\0\n", 2)) + 1);
  return text;
}

}  // namespace

// First the toolkit that goes with the driver: its PTX is not too new for it.
std::vector<std::string> compiler_candidates(int cuda_version) {
  // Nothing of the environment leads to code in a program that runs with more rights. Nor do
  // variables that a plug-in has set.
  if (const auto file = kept_secure_variable("CTXBROKER_NVRTC")) return {*file};
  const std::string first = std::to_string(cuda_version / 1000);
  std::vector<std::string> names;
  for (const std::string& major : {first, std::string("13"), std::string("12")}) {
    const std::string name = "libnvrtc.so." + major;
    if (names.empty() || major != first) names.push_back(name);
  }
  std::vector<std::string> all = names;
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const std::string folder = folder_from_environment(variable).string();
    if (!folder.empty()) folders.push_back(folder);
  }
  folders.emplace_back("/usr/local/cuda");
  for (const std::string& folder : folders) {
    // NVIDIA's installer, packages of Conda and Python, and those of distributions.
    for (const char* const below : {"/lib64/", "/lib/", "/targets/x86_64-linux/lib/"}) {
      for (const std::string& name : names) {
        all.push_back(folder);
        all.back().append(below).append(name);
      }
    }
  }
  return all;
}

std::string compile_cuda(const CudaSource& source, int compute_capability, int cuda_version,
                         const std::string& who) {
  const Compiler& compiler = compiler_for(cuda_version, who);
  const std::string architecture =
      "--gpu-architecture=compute_" +
      std::to_string(architecture_for(compiler, compute_capability, who));
  std::vector<const char*> options{architecture.c_str()};
  for (const std::string& option : source.options) options.push_back(option.c_str());
  const auto refuse = [&](int status, const std::string& log) {
    throw Error(
        ErrorKind::kernel_image,
        who + " cannot be compiled from \"" + source.name + "\": " + compiler.error_string(status) +
            (log.empty() ? "; the compiler's log is empty" : "; the compiler's log: " + log));
  };
  Program program = nullptr;
  int status =
      compiler.create(&program, source.text.c_str(), source.name.c_str(), 0, nullptr, nullptr);
  if (status != 0) refuse(status, {});
  status = compiler.compile(program, static_cast<int>(options.size()), options.data());
  const std::string log = take(program, compiler.log_size, compiler.log);
  const std::string ptx = status == 0 ? take(program, compiler.ptx_size, compiler.ptx) : "";
  compiler.destroy(&program);
  if (status != 0 || ptx.empty()) refuse(status, log);
  return ptx + "\n";
}

}  // namespace ctxbroker::detail
