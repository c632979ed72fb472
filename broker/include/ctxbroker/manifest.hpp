// SPDX-License-Identifier: Apache-2.0
/// @file
/// Manifests: what a plug-in library says of its plug-ins, in a file beside it that is read without
/// running the library's code.
///
/// "blur.so" has its manifest in "blur.ctxb.json". ctxb_add_plugin writes it when it builds the
/// library, and `ctxb-scan --manifest` does so for any library. docs/manifest.schema.json describes
/// the file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/export.hpp"
#include "ctxbroker/plugin_description.hpp"

namespace ctxbroker {

/// What a manifest says.
struct Manifest {
  /// The library's build-id in hexadecimal, which the linker made of its content. A manifest with
  /// another id is of another build of the library, and must not be believed.
  std::string build_id;
  /// At least one. Their library_path is the library that read_manifest was asked about.
  std::vector<PluginDescription> plugins;
};

/// What came of reading a manifest.
struct ManifestReading {
  Manifest manifest;    ///< Empty unless `trouble` is.
  bool exists = false;  ///< Whether there is a file, good or bad.
  bool stale = false;   ///< It is whole, and belongs to another build of the library.
  /// Why the manifest cannot be used, with the file and the place in it. Empty: it can be used.
  std::string trouble;
};

/// Returns where the manifest of a library is. It need not be there. Thread-safe.
[[nodiscard]] CTXB_API std::filesystem::path manifest_path(const std::filesystem::path& library);

/// Reads and checks the manifest beside a library. No code of the library runs. Thread-safe.
///
/// @param library  the library's file.
[[nodiscard]] CTXB_API ManifestReading read_manifest(const std::filesystem::path& library);

/// Returns a manifest as JSON with the schema "ctxbroker.manifest/1". The descriptors of one
/// library always give the same text, whatever the file's path. Thread-safe.
[[nodiscard]] CTXB_API std::string to_json(const Manifest& manifest);

/// Makes the manifest of a library from descriptions of its plug-ins, for example those of a loaded
/// PluginLibrary. Thread-safe.
///
/// @throws Error  `plugin_load` when the file has no build-id. Link it with -Wl,--build-id.
[[nodiscard]] CTXB_API Manifest make_manifest(const std::filesystem::path& library,
                                              const std::vector<PluginDescription>& plugins);

}  // namespace ctxbroker
