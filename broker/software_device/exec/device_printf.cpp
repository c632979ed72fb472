// SPDX-License-Identifier: Apache-2.0
// vprintf, called by a lane: reads what the lane may read, and adds the text to the launch's.
#include <cstring>
#include <new>
#include <optional>

#include "exec/engine.hpp"
#include "exec/printf_format.hpp"
#include "exec/printout.hpp"

namespace ctxbroker::software::exec {
namespace {

constexpr std::int32_t no_format = -1, internal_error = -2;

// Atomic, since other lanes may write there: as all accesses of kernels are for ThreadSanitizer.
template <class T>
void copy_atomically(const std::byte* from, std::span<std::byte> into) {
  const T value = __atomic_load_n(reinterpret_cast<const T*>(from), __ATOMIC_RELAXED);
  std::memcpy(into.data(), &value, sizeof(value));
}

// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): it overlooks "final"
class LaneReader final : public DeviceReader {
 public:
  LaneReader(Group& group, const Instr& in, std::uint32_t lane)
      : group_(group), in_(in), lane_(lane) {}

  bool read(std::uint64_t address, std::span<std::byte> into) override {
    const auto bytes = static_cast<std::uint32_t>(into.size());
    const std::byte* from = memory_at(address, bytes);
    if (from == nullptr) return false;
    switch (bytes) {
      case 1:
        copy_atomically<std::uint8_t>(from, into);
        break;
      case 4:
        copy_atomically<std::uint32_t>(from, into);
        break;
      default:
        copy_atomically<std::uint64_t>(from, into);
    }
    return true;
  }

 private:
  const std::byte* memory_at(std::uint64_t address, std::uint32_t bytes) {
    // A string is read byte by byte: all but its first are in the range that this one made known.
    const AddressRange& known = group_.block->sites[in_.site];
    const bool is_known = address % bytes == 0 && address >= known.begin && address < known.end &&
                          known.end - address >= bytes;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): device addresses are host addresses
    if (is_known) return reinterpret_cast<const std::byte*>(address);
    return resolve_address(group_, in_, lane_, address, bytes, Access::exact_read);
  }

  Group& group_;
  const Instr& in_;
  std::uint32_t lane_;
};

}  // namespace

bool print_text(Group& group, const Instr& in, std::uint32_t lane, std::uint64_t format,
                std::uint64_t arguments, std::int32_t& result) {
  if (format == 0) {
    result = no_format;
    return true;
  }
  result = internal_error;
  Printout* printout = group.block->printout;
  try {
    LaneReader reader(group, in, lane);
    const std::optional<FormattedText> made = format_text(reader, format, arguments);
    if (!made) return false;
    if (printout == nullptr) return true;
    printout->add(made->text);
    result = made->arguments;
  } catch (const std::bad_alloc&) {
    // The kernel hears of it, by `result`, and goes on.
  }
  return true;
}

}  // namespace ctxbroker::software::exec
