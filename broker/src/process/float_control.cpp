// SPDX-License-Identifier: Apache-2.0
#include "process/float_control.hpp"

#include <cstdio>

namespace ctxbroker::detail {
namespace {

struct Part {
  std::uint64_t vector;
  std::uint16_t x87;
  const char* name;
};

#if defined(__x86_64__)
constexpr Part parts[] = {
    {0x8040, 0, "how subnormal numbers are treated (-ffast-math links code that flushes them)"},
    {0x6000, 0x0c00, "the rounding mode"},
    {0, 0x0300, "the precision"},
    {0x1f80, 0x003f, "which exceptions trap"}};
#else
constexpr Part parts[] = {
    {0x01080003, 0, "how subnormal numbers are treated (-ffast-math links code that flushes them)"},
    {0x00c00000, 0, "the rounding mode"},
    {0x00009f00, 0, "which exceptions trap"}};
#endif

}  // namespace

void FloatControl::restore(char* text, std::size_t bytes) const noexcept {
  const FloatControl now{OfThisThread()};
  set();
  const auto vector_changes = static_cast<std::uint64_t>(now.vector_ ^ vector_);
  const int x87_changes = now.x87_ ^ x87_;
  int length = std::snprintf(text, bytes, "changed the thread's floating-point control: ");
  const char* between = "";
  for (const Part& part : parts) {
    if ((vector_changes & part.vector) == 0 && (x87_changes & part.x87) == 0) continue;
    if (length < 0 || static_cast<std::size_t>(length) >= bytes) return;
    length += std::snprintf(text + length, bytes - static_cast<std::size_t>(length), "%s%s",
                            between, part.name);
    between = ", ";
  }
  if (length < 0 || static_cast<std::size_t>(length) >= bytes) return;
  std::snprintf(text + length, bytes - static_cast<std::size_t>(length), "; it was put back");
}

}  // namespace ctxbroker::detail
