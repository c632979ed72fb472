// SPDX-License-Identifier: Apache-2.0
// What a scanning host and the scanning program say to each other: a line of JSON each.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "scan/examine.hpp"

namespace ctxbroker::detail {

// The program is started with this word.
inline constexpr const char* serve_word = "--serve";

// The program's first line. Without it, the program itself does not work here.
std::string ready_line();
bool is_ready_line(const std::string& line);

struct ScanRequest {
  std::filesystem::path file;  // its name is UTF-8
  std::chrono::milliseconds deadline{0};
};
std::string request_line(const ScanRequest& request);
std::optional<ScanRequest> parse_request(const std::string& line);

std::string reply_line(const std::filesystem::path& file, const Examination& examination);
// Nothing when the line is no answer about `file`.
std::optional<Examination> parse_reply(const std::string& line, const std::filesystem::path& file);

}  // namespace ctxbroker::detail
