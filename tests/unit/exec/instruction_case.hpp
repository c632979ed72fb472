// Checks one instruction against a plain function, on every engine and level, for all combinations
// of edge values and some random ones.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "support.hpp"

namespace ctxbroker::software::exec::testing {

template <class T>
struct RegisterOf;
template <>
struct RegisterOf<std::uint16_t> {
  static constexpr const char *type = "b16", *move = "u16";
};
template <>
struct RegisterOf<std::uint32_t> {
  static constexpr const char *type = "b32", *move = "u32";
};
template <>
struct RegisterOf<std::uint64_t> {
  static constexpr const char *type = "b64", *move = "u64";
};
template <>
struct RegisterOf<std::int16_t> : RegisterOf<std::uint16_t> {};
template <>
struct RegisterOf<std::int32_t> : RegisterOf<std::uint32_t> {};
template <>
struct RegisterOf<std::int64_t> : RegisterOf<std::uint64_t> {};
template <>
struct RegisterOf<float> {
  static constexpr const char *type = "f32", *move = "f32";
};
template <>
struct RegisterOf<double> {
  static constexpr const char *type = "f64", *move = "f64";
};
// A predicate; in memory a 32-bit number, 0 or 1.
template <>
struct RegisterOf<bool> {
  static constexpr const char *type = "pred", *move = "u32";
};

template <class T>
struct InMemory {
  using Type = T;
};
template <>
struct InMemory<bool> {
  using Type = std::uint32_t;
};
template <class T>
using Memory = typename InMemory<T>::Type;

template <class T>
std::vector<Memory<T>> edges() {
  if constexpr (std::is_same_v<T, bool>) {
    return {0, 1};
  } else if constexpr (std::is_floating_point_v<T>) {
    using L = std::numeric_limits<T>;
    std::vector<T> values = {0,
                             1,
                             T(0.5),
                             T(1.5),
                             T(2.5),
                             T(3.25),
                             T(100.7),
                             T(255.5),
                             T(65536),
                             T(2147483648.0),
                             T(4294967296.0),
                             T(9.3e18),
                             T(1.9e19),
                             L::max(),
                             L::min(),
                             L::denorm_min(),
                             L::min() / 4,
                             L::epsilon(),
                             L::infinity(),
                             T(1) + L::epsilon(),
                             T(1e-20)};
    const std::size_t count = values.size();
    for (std::size_t i = 0; i < count; ++i) values.push_back(-values[i]);
    values.push_back(L::quiet_NaN());
    return values;
  } else {
    using L = std::numeric_limits<T>;
    return {0,
            1,
            2,
            3,
            5,
            7,
            31,
            32,
            33,
            63,
            64,
            100,
            255,
            T(L::max()),
            T(L::min()),
            T(L::max() / 2),
            T(L::max() / 2 + 1),
            T(-1),
            T(-2),
            T(-7),
            T(-128),
            T(0x1234),
            T(0x8000)};
  }
}

template <class T, class Random>
Memory<T> random_value(Random& random) {
  const std::uint64_t bits = random();
  if constexpr (std::is_same_v<T, bool>) {
    return bits & 1;
  } else if constexpr (std::is_same_v<T, float>) {
    return bits % 3 == 0 ? std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32))
                         : static_cast<float>(static_cast<std::int64_t>(bits)) * 1e-17F;
  } else if constexpr (std::is_same_v<T, double>) {
    return bits % 3 == 0 ? std::bit_cast<double>(random())
                         : static_cast<double>(static_cast<std::int64_t>(bits)) * 1e-17;
  } else {
    return static_cast<T>(bits >> (bits % 5 * 8));
  }
}

template <class T>
bool same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  }
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T>
std::string shown(T value) {
  char text[80];
  if constexpr (std::is_floating_point_v<T>) {
    std::snprintf(text, sizeof(text), "%.17g (%a)", double(value), double(value));
  } else {
    std::snprintf(text, sizeof(text), "%lld (0x%llx)", static_cast<long long>(value),
                  static_cast<unsigned long long>(value));
  }
  return text;
}

// All combinations of the operands' edge values, then random ones.
template <class... S>
std::vector<std::tuple<Memory<S>...>> combinations() {
  std::vector<std::tuple<Memory<S>...>> all;
  if constexpr (sizeof...(S) != 0) {
    const std::tuple<std::vector<Memory<S>>...> lists = {edges<S>()...};
    const std::size_t total =
        std::apply([](const auto&... list) { return (list.size() * ...); }, lists);
    // Where there are too many, an odd stride still meets every value of every operand.
    const std::size_t stride = total > 20000 ? total / 20000 * 2 + 1 : 1;
    for (std::size_t i = 0; i < total; i += stride) {
      std::size_t rest = i;
      const auto pick = [&](const auto& list) {
        const auto value = list[rest % list.size()];
        rest /= list.size();
        return value;
      };
      std::apply([&](const auto&... list) { all.push_back({pick(list)...}); }, lists);
    }
    std::mt19937_64 random(12345);
    for (int i = 0; i < 1000; ++i) all.push_back({random_value<S>(random)...});
  }
  return all;
}

// The kernel: d[i] = instruction(a[i], b[i], ...). "%0" to "%3" in the text are the operands, "%d"
// the destination; without them they are appended in that order.
template <class D, class... S>
std::string instruction_kernel(std::string text) {
  const char* names[] = {"a", "b", "c", "e"};
  if (text.find("%d") == std::string::npos) {
    text += " %d";
    for (std::size_t i = 0; i < sizeof...(S); ++i) text += ", %" + std::to_string(i);
  }
  if (text.back() != '}') text += ";";
  for (std::size_t at = 0; (at = text.find('%', at)) != std::string::npos;) {
    const char which = text[at + 1];
    text.replace(at, 2, which == 'd' ? "d" : names[which - '0']);
  }
  std::string body =
      ".reg .b32 i, n, t, s; .reg .b64 p, o; .reg .pred q;\n"
      "mov.u32 t, %tid.x; mov.u32 s, %ctaid.x; mov.u32 i, %ntid.x; mad.lo.s32 i, i, s, t;\n"
      "ld.param.u32 n, [count]; setp.ge.u32 q, i, n; @q exit;\n";
  std::string parameters = ".param .u32 count, .param .u64 p_d";
  std::size_t index = 0;
  const auto declare = [&](const char* type, const char* move, std::size_t size) {
    const std::string name = names[index++];
    parameters += ", .param .u64 p_" + name;
    body += ".reg ." + std::string(type) + " " + name + "; ld.param.u64 p, [p_" + name +
            "]; mul.wide.u32 o, i, " + std::to_string(size) + "; add.s64 p, p, o;\n";
    if (std::string(type) == "pred") {
      body += "ld.global.u32 t, [p]; setp.ne.s32 " + name + ", t, 0;\n";
    } else {
      body += "ld.global." + std::string(move) + " " + name + ", [p];\n";
    }
  };
  (declare(RegisterOf<S>::type, RegisterOf<S>::move, sizeof(Memory<S>)), ...);
  body += ".reg ." + std::string(RegisterOf<D>::type) + " d;\n" + text +
          "\nld.param.u64 p, [p_d]; mul.wide.u32 o, i, " + std::to_string(sizeof(Memory<D>)) +
          "; add.s64 p, p, o;\n";
  if (std::is_same_v<D, bool>) {
    body += "selp.u32 t, 1, 0, d; st.global.u32 [p], t;\n";
  } else {
    body += "st.global." + std::string(RegisterOf<D>::move) + " [p], d;\n";
  }
  return kernel_text(parameters, body + "ret;");
}

// `accept(expected, found, inputs...)` says whether a result is right.
template <class D, class... S, class Reference, class Accept>
void check_with(const std::string& text, Reference reference, Accept accept) {
  SCOPED_TRACE(text);
  Device device(instruction_kernel<D, S...>(text));
  const auto inputs = combinations<S...>();
  const auto count = static_cast<std::uint32_t>(inputs.size());
  auto* results = device.upload(std::vector<Memory<D>>(count));
  Arguments arguments(count, results);
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const auto add = [&]<std::size_t K>() {
      std::vector<std::tuple_element_t<K, std::tuple<Memory<S>...>>> column;
      for (const auto& row : inputs) column.push_back(std::get<K>(row));
      arguments.add(device.upload(column));
    };
    (add.template operator()<I>(), ...);
  }
  (std::index_sequence_for<S...>());
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    std::memset(results, 0x5a, count * sizeof(*results));
    const Outcome outcome = device.launch(config, "k", {(count + 127) / 128}, {128}, arguments);
    ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
    int wrong = 0;
    for (std::uint32_t i = 0; i < count && wrong < 5; ++i) {
      const D expected = std::apply(reference, inputs[i]);
      const D found = static_cast<D>(results[i]);
      if (std::apply([&](auto... s) { return accept(expected, found, s...); }, inputs[i])) continue;
      ++wrong;
      std::string shown_inputs;
      std::apply([&](auto... s) { ((shown_inputs += " " + shown(s)), ...); }, inputs[i]);
      ADD_FAILURE() << "of" << shown_inputs << ": " << shown(found) << ", should be "
                    << shown(expected);
    }
    if (wrong != 0) return;
  }
}

template <class D, class... S, class Reference>
void check(const std::string& text, Reference reference) {
  check_with<D, S...>(text, reference,
                      [](D expected, D found, Memory<S>...) { return same(expected, found); });
}

}  // namespace ctxbroker::software::exec::testing
