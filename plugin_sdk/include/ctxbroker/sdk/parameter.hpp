/// @file
/// Parameters as typed constants: described once, and read with the right type.
///
///     constexpr Real stops{0, "stops", "Stops", "EV", "How much brighter.", {-16, 16}, 0};
///     constexpr Toggle mute{1, "mute", "Mute", "Silence.", false};
///     constexpr auto parameters = parameter_table(stops, mute);  // checked by the compiler
///     ...
///     const double ev = job[stops];
///     const bool silent = job[mute];
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "ctxbroker/plugin.h"

namespace ctxbroker::sdk {

/// The values that are allowed, both ends included.
struct Range {
  double minimum;
  double maximum;
};

/// What all kinds of parameters have. The host can change one between two jobs, unless fixed() is
/// applied to it.
///
/// The kinds' constructors take
/// - `its_index`: its index in the plug-in's table, from 0;
/// - `id`: unique in the plug-in and fixed for ever, of a-z, 0-9 and _;
/// - `name`: for people;
/// - `unit`: "EV", "px", "Hz", ...; "" for a plain number;
/// - `description`: one sentence;
/// - the values that are allowed, and the default.
///
/// All text is kept by pointer, so it must have static storage.
template <class ValueType>
struct Parameter {
  using Value = ValueType;  ///< The type that ParameterValues gives its values.
  std::uint32_t index;      ///< Its index in the plug-in's table.
  ctxb_parameter raw;       ///< The C description.
};

/// Any number within the range.
struct Real : Parameter<double> {
  constexpr Real(std::uint32_t its_index, const char* id, const char* name, const char* unit,
                 const char* description, Range range, double default_value)
      : Parameter{
            its_index,
            {sizeof(ctxb_parameter), CTXB_PARAMETER_FLOAT, id, name, unit, description,
             range.minimum, range.maximum, default_value, nullptr, CTXB_PARAMETER_AUTOMATABLE}} {}
};

/// A whole number within the range.
struct Integer : Parameter<std::int64_t> {
  constexpr Integer(std::uint32_t its_index, const char* id, const char* name, const char* unit,
                    const char* description, Range range, std::int64_t default_value)
      : Parameter{its_index,
                  {sizeof(ctxb_parameter), CTXB_PARAMETER_INTEGER, id, name, unit, description,
                   range.minimum, range.maximum, static_cast<double>(default_value), nullptr,
                   CTXB_PARAMETER_AUTOMATABLE}} {}
};

/// On or off.
struct Toggle : Parameter<bool> {
  constexpr Toggle(std::uint32_t its_index, const char* id, const char* name,
                   const char* description, bool default_value)
      : Parameter{its_index,
                  {sizeof(ctxb_parameter), CTXB_PARAMETER_BOOLEAN, id, name, "", description, 0, 1,
                   default_value ? 1.0 : 0.0, nullptr, CTXB_PARAMETER_AUTOMATABLE}} {}
};

/// One of several names. Its value is the name's index. `choices` ends with a null pointer.
struct Choice : Parameter<std::uint32_t> {
  template <std::size_t Count>
  constexpr Choice(std::uint32_t its_index, const char* id, const char* name,
                   const char* description, const char* const (&choices)[Count],
                   std::uint32_t default_value)
      : Parameter{its_index,
                  {sizeof(ctxb_parameter), CTXB_PARAMETER_CHOICE, id, name, "", description, 0,
                   static_cast<double>(Count) - 2, static_cast<double>(default_value), choices,
                   CTXB_PARAMETER_AUTOMATABLE}} {
    static_assert(Count >= 2, "a choice needs a name and the ending null pointer");
    if (choices[Count - 1] != nullptr) {
      throw std::logic_error("the choices do not end with a null pointer");
    }
  }
};

/// Returns the parameter without CTXB_PARAMETER_AUTOMATABLE: the host changes its value only while
/// the plug-in is not active.
template <class Kind>
[[nodiscard]] constexpr Kind fixed(Kind parameter) {
  parameter.raw.flags &= ~CTXB_PARAMETER_AUTOMATABLE;
  return parameter;
}

namespace detail {

constexpr bool equal_text(const char* a, const char* b) {
  for (; *a != '\0' && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}

constexpr void check_parameter(const ctxb_parameter& parameter) {
  if (!(parameter.minimum <= parameter.maximum) ||
      !(parameter.default_value >= parameter.minimum) ||
      !(parameter.default_value <= parameter.maximum)) {
    throw std::logic_error("a parameter's default is not within its range");
  }
  if (*parameter.id == '\0') {
    throw std::logic_error("a parameter has no id");
  }
  for (const char* c = parameter.id; *c != '\0'; ++c) {
    if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '_')) {
      throw std::logic_error("a parameter's id has a character other than a-z, 0-9 and _");
    }
  }
}

}  // namespace detail

/// Makes the table for Descriptor::parameters. Keep it in a constexpr variable with static storage:
/// a mistake then does not compile.
///
/// @param kinds  the parameters, in the order of their indices.
/// @throws std::logic_error  for an index out of order, an id that occurs twice or cannot be one,
///                           and a default out of range.
template <class... Kinds>
[[nodiscard]] constexpr std::array<ctxb_parameter, sizeof...(Kinds)> parameter_table(
    const Kinds&... kinds) {
  std::array<ctxb_parameter, sizeof...(Kinds)> table{{kinds.raw...}};
  const std::array<std::uint32_t, sizeof...(Kinds)> indices{{kinds.index...}};
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (indices[i] != i) {
      throw std::logic_error("a parameter's index differs from its row in the table");
    }
    detail::check_parameter(table[i]);
    for (std::size_t j = 0; j < i; ++j) {
      if (detail::equal_text(table[i].id, table[j].id)) {
        throw std::logic_error("two parameters have the same id");
      }
    }
  }
  return table;
}

/// The values of an activation's or a job's parameters. They do not change during the call.
class ParameterValues {
 public:
  /// Only the SDK constructs one.
  ParameterValues(const double* values, std::uint32_t count) noexcept
      : values_(values), count_(count) {}

  /// Returns the value of a parameter in the parameter's own type.
  ///
  /// @param parameter  a parameter of this plug-in's table.
  /// @throws std::out_of_range  when the host sent no value for it.
  template <class Value>
  [[nodiscard]] Value operator[](const Parameter<Value>& parameter) const {
    if (parameter.index >= count_) {
      throw std::out_of_range(std::string("the host sent no value for the parameter '") +
                              parameter.raw.id + "'");
    }
    return convert(values_[parameter.index], Value{});
  }

 private:
  static double convert(double value, double) noexcept { return value; }
  static bool convert(double value, bool) noexcept { return value >= 0.5; }
  static std::int64_t convert(double value, std::int64_t) noexcept { return std::llround(value); }
  static std::uint32_t convert(double value, std::uint32_t) noexcept {
    return static_cast<std::uint32_t>(std::llround(value));
  }

  const double* values_;
  std::uint32_t count_;
};

}  // namespace ctxbroker::sdk
