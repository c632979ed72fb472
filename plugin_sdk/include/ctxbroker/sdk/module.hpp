// SPDX-License-Identifier: Apache-2.0
/// @file
/// A plug-in's device code, as Descriptor::modules takes it:
///
///     constexpr ctxb_module modules[] = {module("blur", blur_ptx, sizeof blur_ptx)};
///     const ctxb_module modules[] = {on_first_use(blur_kernels::blur),
///                                    watched(blur_kernels::sharpen, "/home/me/sharpen.cu")};
///
/// Everything that goes in is kept by pointer, so it must have static storage. What ctxb_add_plugin
/// generates is not a compile-time constant, so declare an array that contains it const, not
/// constexpr.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ctxbroker/plugin.h"

namespace ctxbroker::sdk {

/// Makes a module of one image.
///
/// @param name     unique in the plug-in.
/// @param data     PTX text with the 0 at its end, a cubin or a fatbin.
/// @param bytes    its size in bytes.
/// @param kernels  names of kernels that must be in it, ending with null; or null.
[[nodiscard]] constexpr ctxb_module module(const char* name, const void* data, std::size_t bytes,
                                           const char* const* kernels = nullptr) {
  ctxb_module made{};
  made.size = sizeof(ctxb_module);
  made.name = name;
  made.data = data;
  made.data_size = bytes;
  made.kernels = kernels;
  return made;
}

/// Makes one of the images that linked() puts together. It is relocatable code (nvcc -rdc=true).
///
/// @param name   for error texts.
/// @param data   PTX text with the 0 at its end, a cubin, a fatbin, or a host object that contains
///               such code.
/// @param bytes  its size in bytes.
[[nodiscard]] constexpr ctxb_module_part part(const char* name, const void* data,
                                              std::size_t bytes) {
  return {sizeof(ctxb_module_part), name, data, bytes, nullptr, 0};
}
/// Does the same with an image in a file.
///
/// @param path  the file. A relative path starts at the folder of the plug-in's library.
[[nodiscard]] constexpr ctxb_module_part part_in_file(const char* path) {
  return {sizeof(ctxb_module_part), path, nullptr, 0, path, 0};
}

/// Makes a module that the driver links from several images.
///
/// @param name     unique in the plug-in.
/// @param parts    the images, in the order of linking. The module keeps their address.
/// @param kernels  names of kernels that must be in it, ending with null; or null.
template <std::size_t Count>
[[nodiscard]] constexpr ctxb_module linked(const char* name, const ctxb_module_part (&parts)[Count],
                                           const char* const* kernels = nullptr) {
  ctxb_module made = module(name, nullptr, 0, kernels);
  made.parts = parts;
  made.part_count = static_cast<std::uint32_t>(Count);
  return made;
}
/// A temporary is refused, because its address would be dead at once.
template <std::size_t Count>
ctxb_module linked(const char* name, const ctxb_module_part (&&parts)[Count],
                   const char* const* kernels = nullptr) = delete;

/// Makes CUDA C++ source for compiled().
///
/// @param name     for error texts: "filter.cu".
/// @param text     the source, in UTF-8.
/// @param options  NVRTC's options, ending with null; or null.
[[nodiscard]] constexpr ctxb_cuda_source cuda_source(const char* name, const char* text,
                                                     const char* const* options = nullptr) {
  return {sizeof(ctxb_cuda_source), name, text, options};
}
/// Makes a module that is compiled on the user's machine, which has to have NVRTC.
///
/// @param name    unique in the plug-in.
/// @param source  what cuda_source returned. The module keeps its address.
[[nodiscard]] constexpr ctxb_module compiled(const char* name, const ctxb_cuda_source& source) {
  ctxb_module made = module(name, nullptr, 0);
  made.source = &source;
  return made;
}
/// A temporary is refused, because its address would be dead at once.
ctxb_module compiled(const char* name, const ctxb_cuda_source&& source) = delete;

/// Returns the module with CTXB_MODULE_ON_FIRST_USE: it is loaded at its first use instead of
/// before activate. An activation for real time always loads it before.
[[nodiscard]] constexpr ctxb_module on_first_use(ctxb_module given) {
  given.flags |= CTXB_MODULE_ON_FIRST_USE;
  return given;
}

/// Returns the module with a file that replaces its code, for use while you write the plug-in.
///
/// As long as the file exists, the host uses it instead of the built-in code. Before a job, and at
/// most five times a second, the host looks whether the file has changed. It does not look with
/// CTXB_PLUGIN_REALTIME or in an activation for real time.
///
/// @param given    the module.
/// @param file     PTX, a cubin, a fatbin, or a .cu file.
/// @param options  NVRTC's options for a .cu file, ending with null; or null. ctxb_add_plugin puts
///                 its own into NAME_kernels::file_options.
[[nodiscard]] constexpr ctxb_module watched(ctxb_module given, const char* file,
                                            const char* const* options = nullptr) {
  given.flags |= CTXB_MODULE_DEVELOPMENT;
  given.file = file;
  given.file_options = options;
  return given;
}

/// Returns the module with options for the driver's compiler.
///
/// @param given    the module.
/// @param options  how the driver compiles its PTX. The module keeps their address.
[[nodiscard]] constexpr ctxb_module with_jit(ctxb_module given, const ctxb_jit_options& options) {
  given.jit = &options;
  return given;
}
/// A temporary is refused, because its address would be dead at once.
ctxb_module with_jit(ctxb_module given, const ctxb_jit_options&& options) = delete;

/// Returns options that leave everything to the driver. Change its members as you like.
[[nodiscard]] constexpr ctxb_jit_options jit_options() {
  ctxb_jit_options made{};
  made.size = sizeof(ctxb_jit_options);
  return made;
}

}  // namespace ctxbroker::sdk
