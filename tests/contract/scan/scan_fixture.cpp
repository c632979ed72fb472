// SPDX-License-Identifier: Apache-2.0
#include "scan_fixture.hpp"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "support/child_process.hpp"

namespace ctxbroker {

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write_text(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

ScanTest::ScanTest() {
  fs::create_directory(folder);
  for (const auto& [variable, value] : signals_stay_signals) {
    setenv(variable.c_str(), value.c_str(), 1);
  }
}

fs::path ScanTest::put(const std::string& library, const std::string& name) const {
  fs::copy_file(test_library(library), folder / name, fs::copy_options::overwrite_existing);
  return folder / name;
}

ScanOptions ScanTest::options() const {
  ScanOptions options;
  options.first = {folder};
  options.environment = false;
  options.standard = false;
  options.cache_file = root / "cache" / "scan.jsonl";
  options.choices_file = root / "config" / "disabled.json";
  return options;
}

const ScannedLibrary& ScanTest::named(const ScanResult& found, const std::string& name) {
  for (const ScannedLibrary& library : found.libraries) {
    if (library.path.filename() == name) return library;
  }
  throw std::runtime_error("no library " + name + " was found");
}

}  // namespace ctxbroker
