#include "image/target.hpp"

#include <algorithm>
#include <charconv>

namespace ctxbroker::image {

namespace {

constexpr std::string_view blanks = " \t\r\n\f\v";

void skip_blanks(std::string_view& text) {
  for (;;) {
    text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
    std::string_view end;
    if (text.starts_with("//") || text.starts_with("#")) {
      end = "\n";
    } else if (text.starts_with("/*")) {
      end = "*/";
    } else {
      return;
    }
    const std::size_t found = text.find(end, 2);
    text.remove_prefix(found == std::string_view::npos ? text.size() : found + end.size());
  }
}

// Returns the directive's first argument, or nothing when the text continues with something else.
std::string_view take_directive(std::string_view& text, std::string_view name) {
  skip_blanks(text);
  if (!text.starts_with(name)) return {};
  text.remove_prefix(name.size());
  skip_blanks(text);
  const std::size_t size = std::min(text.find_first_of(" \t\r\n\f\v,/"), text.size());
  const std::string_view argument = text.substr(0, size);
  text.remove_prefix(size);
  return argument;
}

}  // namespace

std::optional<Target> find_target(std::string_view text) {
  if (take_directive(text, ".version").empty()) return std::nullopt;
  const std::string_view name = take_directive(text, ".target");
  const std::size_t digits = name.find('_') + 1;  // 0 when there is none
  if (!name.starts_with("sm_") && !name.starts_with("compute_")) return std::nullopt;
  Target target;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + digits, end, target.capability);
  if (parsed.ec != std::errc() || target.capability < 1) return std::nullopt;
  if (parsed.ptr == end) return target;
  target.variant = *parsed.ptr;
  const bool known = target.variant == 'a' || target.variant == 'f';
  if (!known || parsed.ptr + 1 != end) return std::nullopt;
  return target;
}

bool runs_on(Target target, int compute) noexcept {
  if (target.variant == 'a') return target.capability == compute;
  if (target.variant == 'f' && target.capability / 10 != compute / 10) return false;
  return target.capability <= compute;
}

std::string to_string(Target target) {
  std::string name = "sm_" + std::to_string(target.capability);
  if (target.variant != '\0') name += target.variant;
  return name;
}

}  // namespace ctxbroker::image
