// Where measured reports are kept between runs.
#pragma once

#include <filesystem>
#include <string>

#include "ctxbroker/probe.hpp"
#include "probe/probe_json.hpp"

namespace ctxbroker::detail {

// $XDG_CACHE_HOME/ctxbroker, or ~/.cache/ctxbroker; empty when neither is known.
std::filesystem::path default_cache_folder();

std::filesystem::path cache_file(const std::filesystem::path& folder, const ProbeKey& key);

// No file: nothing and no trouble.
ReadProbe read_cache(const std::filesystem::path& file, const ProbeKey& key);

// Written beside its place and renamed. Why it could not be kept, or empty.
std::string write_cache(const std::filesystem::path& file, const std::string& text);

}  // namespace ctxbroker::detail
