// A plug-in's device code as the descriptor takes it, and what may be asked for beside it:
//
//   constexpr ctxb_module modules[] = {module("blur", blur_ptx, sizeof blur_ptx)};
//   const ctxb_module modules[] = {on_first_use(blur_kernels::blur),
//                                  watched(blur_kernels::sharpen, "/home/me/sharpen.cu")};
//
// Everything handed in has static storage. What ctxb_add_plugin generates is no compile-time
// constant: an array with it in it is const, not constexpr.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ctxbroker/plugin.h"

namespace ctxbroker::sdk {

// One image: PTX text with its ending 0, a cubin or a fatbin. `kernels` may name those that must be
// in it, ending with null.
constexpr ctxb_module module(const char* name, const void* data, std::size_t bytes,
                             const char* const* kernels = nullptr) {
  ctxb_module made{};
  made.size = sizeof(ctxb_module);
  made.name = name;
  made.data = data;
  made.data_size = bytes;
  made.kernels = kernels;
  return made;
}

// One of several images that are linked into one module. `name` is for error texts.
constexpr ctxb_module_part part(const char* name, const void* data, std::size_t bytes) {
  return {sizeof(ctxb_module_part), name, data, bytes, nullptr, 0};
}
constexpr ctxb_module_part part_in_file(const char* path) {
  return {sizeof(ctxb_module_part), path, nullptr, 0, path, 0};
}

template <std::size_t Count>
constexpr ctxb_module linked(const char* name, const ctxb_module_part (&parts)[Count],
                             const char* const* kernels = nullptr) {
  ctxb_module made = module(name, nullptr, 0, kernels);
  made.parts = parts;
  made.part_count = static_cast<std::uint32_t>(Count);
  return made;
}
// A module keeps the addresses of what it is made of, so that must not be gone at once.
template <std::size_t Count>
ctxb_module linked(const char* name, const ctxb_module_part (&&parts)[Count],
                   const char* const* kernels = nullptr) = delete;

// CUDA C++ that is compiled on the user's machine. `options` end with null.
constexpr ctxb_cuda_source cuda_source(const char* name, const char* text,
                                       const char* const* options = nullptr) {
  return {sizeof(ctxb_cuda_source), name, text, options};
}
constexpr ctxb_module compiled(const char* name, const ctxb_cuda_source& source) {
  ctxb_module made = module(name, nullptr, 0);
  made.source = &source;
  return made;
}
ctxb_module compiled(const char* name, const ctxb_cuda_source&& source) = delete;

// Loaded when it is first used, not with the activation; but always before one for real time.
constexpr ctxb_module on_first_use(ctxb_module given) {
  given.flags |= CTXB_MODULE_ON_FIRST_USE;
  return given;
}

// While the plug-in is written: the file, as long as it is there, counts instead of what is built
// in, and a job uses what it holds when the job begins. PTX, cubin, fatbin, or a .cu file; for that
// the compiler's options, ending with null: NAME_kernels::file_options has what ctxb_add_plugin was
// given.
constexpr ctxb_module watched(ctxb_module given, const char* file,
                              const char* const* options = nullptr) {
  given.flags |= CTXB_MODULE_DEVELOPMENT;
  given.file = file;
  given.file_options = options;
  return given;
}

constexpr ctxb_module with_jit(ctxb_module given, const ctxb_jit_options& options) {
  given.jit = &options;
  return given;
}
ctxb_module with_jit(ctxb_module given, const ctxb_jit_options&& options) = delete;

// To begin with: every member is the driver's choice.
constexpr ctxb_jit_options jit_options() {
  ctxb_jit_options made{};
  made.size = sizeof(ctxb_jit_options);
  return made;
}

}  // namespace ctxbroker::sdk
