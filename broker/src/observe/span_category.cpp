#include "observe/span_category.hpp"

#include <array>
#include <cstddef>

namespace ctxbroker::detail {
namespace {

constexpr std::array<SpanCategoryRow, 10> rows{{
    {"guard", {"generation", nullptr}},
    {"job", {"width", "height"}},
    {"call", {nullptr, nullptr}},
    {"launch", {"blocks", "threads_per_block"}},
    {"copy", {"bytes", nullptr}},
    {"wait", {nullptr, nullptr}},
    {"load", {"bytes", nullptr}},
    {"lease", {"device", nullptr}},
    {"strike", {nullptr, nullptr}},
    {"device", {"device", "generation"}},
}};
static_assert(rows.size() == static_cast<std::size_t>(SpanCategory::device) + 1);

}  // namespace

const SpanCategoryRow& row_of(SpanCategory category) noexcept {
  return rows[static_cast<std::size_t>(category)];
}

}  // namespace ctxbroker::detail
