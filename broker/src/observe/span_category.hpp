// What is written of each category of spans.
#pragma once

#include "observe/span.hpp"

namespace ctxbroker::detail {

struct SpanCategoryRow {
  const char* name;
  const char* values[2];  // names of Span::values; null: not written
};

const SpanCategoryRow& row_of(SpanCategory category) noexcept;

}  // namespace ctxbroker::detail
