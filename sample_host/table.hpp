// SPDX-License-Identifier: Apache-2.0
// Aligned columns of text, and numbers as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ctxbroker::sample_host {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
};

// Lines that end with '\n', two blanks between columns, no blanks at line ends. With titles a rule
// follows them. Widths count characters (UTF-8), not bytes. Rows have one cell per column.
std::string format_table(const std::vector<Column>& columns,
                         const std::vector<std::vector<std::string>>& rows);

std::string format_bytes(std::uint64_t bytes);  // "0 B", "512 B", "1.5 KiB", "31.6 MiB"
std::string format_seconds(double seconds);     // "0 s", "12.3 us", "4.56 ms", "1.23 s"
std::string format_number(double value);        // shortest text that reads back: "0.7", "100000"

}  // namespace ctxbroker::sample_host
