// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parameters as typed constants: described once, and read with the right type.
///
///     constexpr Real stops{0, "stops", "Stops", "EV", "How much brighter.", {-16, 16}, 0};
///     constexpr Toggle mute{1, "mute", "Mute", "Silence.", false};
///     constexpr Colour tint{2, "tint", "Tint", "Multiplies.", {0, 4}, {1, 1, 1, 1}};
///     constexpr auto parameters = parameter_table(stops, mute, tint);  // checked by the compiler
///     ...
///     const double ev = job[stops];
///     const bool silent = job[mute];
///     const double red = job[tint].red;
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ctxbroker/plugin.h"

namespace ctxbroker::sdk {

/// The values that are allowed, both ends included.
struct Range {
  double minimum;
  double maximum;
};

/// The value of a Colour: linear light, straight alpha.
struct ColourValue {
  double red;
  double green;
  double blue;
  double alpha;
};

/// The value of a Point.
struct PointValue {
  double x;
  double y;
};

namespace detail {
constexpr ctxb_parameter describe(std::uint32_t type, const char* id, const char* name,
                                  const char* unit, const char* description, Range range,
                                  ColourValue first) {
  ctxb_parameter raw{};
  raw.size = sizeof(ctxb_parameter);
  raw.type = type;
  raw.id = id;
  raw.name = name;
  raw.unit = unit;
  raw.description = description;
  raw.minimum = range.minimum;
  raw.maximum = range.maximum;
  raw.default_numbers[0] = first.red;
  raw.default_numbers[1] = first.green;
  raw.default_numbers[2] = first.blue;
  raw.default_numbers[3] = first.alpha;
  raw.flags = CTXB_PARAMETER_AUTOMATABLE;
  raw.skew = 1;
  raw.group = "";
  raw.default_text = "";
  return raw;
}

constexpr ctxb_parameter describe_text(std::uint32_t type, const char* id, const char* name,
                                       const char* description, const char* default_text) {
  ctxb_parameter raw = describe(type, id, name, "", description, {0, 0}, {0, 0, 0, 0});
  raw.flags = 0;
  raw.default_text = default_text;
  return raw;
}
}  // namespace detail

/// What all kinds of parameters have. The host can change a number between two jobs, unless fixed()
/// is applied to it. It can change a text only while the plug-in is not active.
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
      : Parameter{its_index, detail::describe(CTXB_PARAMETER_FLOAT, id, name, unit, description,
                                              range, {default_value, 0, 0, 0})} {}
};

/// A whole number within the range.
struct Integer : Parameter<std::int64_t> {
  constexpr Integer(std::uint32_t its_index, const char* id, const char* name, const char* unit,
                    const char* description, Range range, std::int64_t default_value)
      : Parameter{its_index,
                  detail::describe(CTXB_PARAMETER_INTEGER, id, name, unit, description, range,
                                   {static_cast<double>(default_value), 0, 0, 0})} {}
};

/// On or off.
struct Toggle : Parameter<bool> {
  constexpr Toggle(std::uint32_t its_index, const char* id, const char* name,
                   const char* description, bool default_value)
      : Parameter{its_index, detail::describe(CTXB_PARAMETER_BOOLEAN, id, name, "", description,
                                              {0, 1}, {default_value ? 1.0 : 0.0, 0, 0, 0})} {}
};

/// One of several names. Its value is the name's index. `choices` ends with a null pointer.
struct Choice : Parameter<std::uint32_t> {
  template <std::size_t Count>
  constexpr Choice(std::uint32_t its_index, const char* id, const char* name,
                   const char* description, const char* const (&choices)[Count],
                   std::uint32_t default_value)
      : Parameter{its_index, detail::describe(CTXB_PARAMETER_CHOICE, id, name, "", description,
                                              {0, static_cast<double>(Count) - 2},
                                              {static_cast<double>(default_value), 0, 0, 0})} {
    static_assert(Count >= 2, "a choice needs a name and the ending null pointer");
    if (choices[Count - 1] != nullptr) {
      throw std::logic_error("the choices do not end with a null pointer");
    }
    raw.choices = choices;
  }
  template <std::size_t Count>
  Choice(std::uint32_t its_index, const char* id, const char* name, const char* description,
         const char* const (&&temporary)[Count], std::uint32_t default_value) = delete;
};

/// Red, green, blue and alpha, each within the range.
struct Colour : Parameter<ColourValue> {
  constexpr Colour(std::uint32_t its_index, const char* id, const char* name,
                   const char* description, Range range, ColourValue default_value)
      : Parameter{its_index, detail::describe(CTXB_PARAMETER_COLOUR, id, name, "", description,
                                              range, default_value)} {}
};

/// A place in two dimensions. x and y are within the range.
struct Point : Parameter<PointValue> {
  constexpr Point(std::uint32_t its_index, const char* id, const char* name, const char* unit,
                  const char* description, Range range, PointValue default_value)
      : Parameter{its_index, detail::describe(CTXB_PARAMETER_POINT, id, name, unit, description,
                                              range, {default_value.x, default_value.y, 0, 0})} {}
};

/// Text of a person's own, of at most CTXB_PARAMETER_TEXT_MAX bytes.
struct Text : Parameter<std::string_view> {
  constexpr Text(std::uint32_t its_index, const char* id, const char* name, const char* description,
                 const char* default_value)
      : Parameter{its_index, detail::describe_text(CTXB_PARAMETER_STRING, id, name, description,
                                                   default_value)} {}
};

/// The path of a file, which the plug-in opens in activate. It is empty until somebody chooses one.
struct File : Parameter<std::string_view> {
  /// A file of any name.
  constexpr File(std::uint32_t its_index, const char* id, const char* name, const char* description)
      : Parameter{its_index,
                  detail::describe_text(CTXB_PARAMETER_FILE, id, name, description, "")} {}
  /// A file whose name ends with one of `endings` (".wav"), which end with a null pointer.
  template <std::size_t Count>
  constexpr File(std::uint32_t its_index, const char* id, const char* name, const char* description,
                 const char* const (&endings)[Count])
      : File(its_index, id, name, description) {
    static_assert(Count >= 2, "the endings are one at least, and the ending null pointer");
    if (endings[Count - 1] != nullptr) {
      throw std::logic_error("the endings do not end with a null pointer");
    }
    raw.endings = endings;
  }
  template <std::size_t Count>
  File(std::uint32_t its_index, const char* id, const char* name, const char* description,
       const char* const (&&temporary)[Count]) = delete;
};

/// Returns the parameter without CTXB_PARAMETER_AUTOMATABLE: the host changes its value only while
/// the plug-in is not active.
template <class Kind>
[[nodiscard]] constexpr Kind fixed(Kind parameter) {
  parameter.raw.flags &= ~CTXB_PARAMETER_AUTOMATABLE;
  return parameter;
}
/// Returns the parameter with CTXB_PARAMETER_HIDDEN: hosts do not show it to people.
template <class Kind>
[[nodiscard]] constexpr Kind hidden(Kind parameter) {
  parameter.raw.flags |= CTXB_PARAMETER_HIDDEN;
  return parameter;
}
/// Returns the parameter with CTXB_PARAMETER_ADVANCED: hosts may show it only to people who ask for
/// more.
template <class Kind>
[[nodiscard]] constexpr Kind advanced(Kind parameter) {
  parameter.raw.flags |= CTXB_PARAMETER_ADVANCED;
  return parameter;
}
/// Returns the parameter in a group, whose name is for people.
template <class Kind>
[[nodiscard]] constexpr Kind in_group(const char* group, Kind parameter) {
  parameter.raw.group = group;
  return parameter;
}
/// Returns the parameter with a slider that moves unevenly: value = minimum + (maximum - minimum) *
/// pow(position, skew). 3 suits frequencies.
///
/// @param parameter  a Real or an Integer.
template <class Kind>
[[nodiscard]] constexpr Kind skewed(double skew, Kind parameter) {
  parameter.raw.skew = skew;
  return parameter;
}

namespace detail {

constexpr bool equal_text(const char* a, const char* b) {
  for (; *a != '\0' && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}

// How many numbers a value of this type has.
constexpr std::size_t number_count(std::uint32_t type) {
  return type == CTXB_PARAMETER_COLOUR  ? 4
         : type == CTXB_PARAMETER_POINT ? 2
         : type < CTXB_PARAMETER_COLOUR ? 1
                                        : 0;
}

constexpr void check_parameter(const ctxb_parameter& parameter) {
  if (!(parameter.minimum <= parameter.maximum)) {
    throw std::logic_error("a parameter's minimum is above its maximum");
  }
  for (std::size_t i = 0; i < number_count(parameter.type); ++i) {
    if (!(parameter.default_numbers[i] >= parameter.minimum) ||
        !(parameter.default_numbers[i] <= parameter.maximum)) {
      throw std::logic_error("a parameter's default is not within its range");
    }
  }
  if (*parameter.id == '\0') {
    throw std::logic_error("a parameter has no id");
  }
  for (const char* c = parameter.id; *c != '\0'; ++c) {
    if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '_')) {
      throw std::logic_error("a parameter's id has a character other than a-z, 0-9 and _");
    }
  }
  const bool can_be_skewed =
      parameter.type == CTXB_PARAMETER_FLOAT || parameter.type == CTXB_PARAMETER_INTEGER;
  if (!(parameter.skew > 0) || (parameter.skew != 1 && !can_be_skewed)) {
    throw std::logic_error("a parameter's skew is not above 0, or it is no Real and no Integer");
  }
}

}  // namespace detail

/// Makes the table for Descriptor::parameters. Keep it in a constexpr variable with static storage:
/// a mistake then does not compile.
///
/// @param kinds  the parameters, in the order of their indices.
/// @throws std::logic_error  for an index out of order, an id that occurs twice or cannot be one,
///                           a default out of range, and a skew that has no meaning.
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
  ParameterValues(const ctxb_value* values, std::uint32_t count) noexcept
      : values_(values), count_(count) {}

  /// Returns the value of a parameter in the parameter's own type. Text is valid during the call.
  ///
  /// @param parameter  a parameter of this plug-in's table.
  /// @throws std::out_of_range  when its index is beyond the descriptor's parameters.
  template <class Value>
  [[nodiscard]] Value operator[](const Parameter<Value>& parameter) const {
    if (parameter.index >= count_) {
      throw std::out_of_range(std::string("the parameter '") + parameter.raw.id +
                              "' is not in the descriptor; give its table to .parameters()");
    }
    // A later version's values may be longer.
    const auto* const bytes = reinterpret_cast<const unsigned char*>(values_);
    const std::size_t offset = std::size_t{parameter.index} * values_->size;
    return convert(*reinterpret_cast<const ctxb_value*>(bytes + offset), Value{});
  }

 private:
  static double convert(const ctxb_value& value, double) noexcept { return value.numbers[0]; }
  static bool convert(const ctxb_value& value, bool) noexcept { return value.numbers[0] >= 0.5; }
  static std::int64_t convert(const ctxb_value& value, std::int64_t) noexcept {
    return std::llround(value.numbers[0]);
  }
  static std::uint32_t convert(const ctxb_value& value, std::uint32_t) noexcept {
    return static_cast<std::uint32_t>(std::llround(value.numbers[0]));
  }
  static ColourValue convert(const ctxb_value& value, ColourValue) noexcept {
    return {value.numbers[0], value.numbers[1], value.numbers[2], value.numbers[3]};
  }
  static PointValue convert(const ctxb_value& value, PointValue) noexcept {
    return {value.numbers[0], value.numbers[1]};
  }
  static std::string_view convert(const ctxb_value& value, std::string_view) noexcept {
    return value.text;
  }

  const ctxb_value* values_;
  std::uint32_t count_;
};

}  // namespace ctxbroker::sdk
