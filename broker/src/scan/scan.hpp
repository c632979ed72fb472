// SPDX-License-Identifier: Apache-2.0
// The steps of a scan that tests look at.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/scan.hpp"

namespace ctxbroker::detail {

// As ctxbroker::scan, for a process with raised privileges or for another one.
ScanResult scan_as(const ScanOptions& options, bool elevated);

// Below 0 when `a` is the lower version, 0 when they are equal: "1.9" is lower than "1.10", and
// "2.0-beta" lower than "2.0".
int compare_versions(std::string_view a, std::string_view b) noexcept;

// Which of several plug-ins with one id counts. Looks at the enabled libraries only.
std::vector<ScanDuplicate> find_duplicates(const std::vector<ScannedLibrary>& libraries);

// Says, in one sentence for each name, which libraries the enabled ones need in different versions.
// Reads their files.
std::vector<std::string> find_version_conflicts(const std::vector<ScannedLibrary>& libraries);

}  // namespace ctxbroker::detail
