// SPDX-License-Identifier: Apache-2.0
// A folder of libraries to scan, with a cache and choices of its own.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <string>

#include "ctxbroker/scan.hpp"
#include "support/temp_folder.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {

namespace fs = std::filesystem;

// The text of a file.
std::string text_of(const fs::path& file);
void write_text(const fs::path& file, const std::string& text);

class ScanTest : public ::testing::Test {
 protected:
  ScanTest();

  // Puts a test library into the folder, under another name.
  fs::path put(const std::string& library, const std::string& name) const;
  // Nothing of this machine's own is searched.
  ScanOptions options() const;
  // The library that was found under that file name.
  static const ScannedLibrary& named(const ScanResult& found, const std::string& name);

  const TempFolder temporary;
  const fs::path root = temporary.path(), folder = root / "plugins";
};

}  // namespace ctxbroker
