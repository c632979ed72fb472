// SPDX-License-Identifier: Apache-2.0
#include "instruction_case.hpp"

namespace ctxbroker::software::exec::testing {
namespace {

using std::uint64_t;

template <class T>
std::vector<uint64_t> edge_bits() {
  std::vector<T> values;
  if constexpr (std::is_floating_point_v<T>) {
    using L = std::numeric_limits<T>;
    values = {0,
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
              T(1e-20),
              L::max(),
              L::min(),
              L::denorm_min(),
              L::min() / 4,
              L::epsilon(),
              T(1) + L::epsilon(),
              L::infinity()};
    const std::size_t count = values.size();
    for (std::size_t i = 0; i < count; ++i) values.push_back(-values[i]);
    values.push_back(L::quiet_NaN());
  } else {
    using L = std::numeric_limits<T>;
    values = {0,        1,
              2,        3,
              5,        7,
              31,       32,
              33,       63,
              64,       100,
              255,      L::max(),
              L::min(), T(L::max() / 2),
              T(-1),    T(L::max() / 2 + 1),
              T(-2),    T(-7),
              T(-128),  T(0x1234),
              T(0x8000)};
  }
  std::vector<uint64_t> bits;
  for (const T value : values) bits.push_back(to_bits(value));
  return bits;
}

template <class T>
OperandKind number(const char* type, const char* move) {
  static const std::vector<uint64_t> edges = edge_bits<T>();
  return {type, move, sizeof(T), false, std::is_floating_point_v<T>, std::is_signed_v<T>, &edges};
}

uint64_t random_bits(const OperandKind& kind, std::mt19937_64& random) {
  const uint64_t bits = random();
  if (kind.is_predicate) return bits & 1;
  if (kind.is_float && bits % 3 != 0) {
    const double value = static_cast<double>(static_cast<std::int64_t>(bits)) * 1e-17;
    return kind.bytes == 4 ? to_bits(static_cast<float>(value)) : to_bits(value);
  }
  const uint64_t shifted = kind.is_float ? random() : bits >> (bits % 5 * 8);
  return kind.bytes == 8 ? shifted : shifted & ((1ULL << (8 * kind.bytes)) - 1);
}

// A row per combination of the operands' edge values, then random rows.
std::vector<std::vector<uint64_t>> combinations(const std::vector<OperandKind>& sources) {
  std::size_t total = 1;
  for (const OperandKind& source : sources) total *= source.edges->size();
  // Where there are too many, an odd stride still meets every value of every operand.
  const std::size_t stride = total > 20000 ? total / 20000 * 2 + 1 : 1;
  std::vector<std::vector<uint64_t>> rows;
  for (std::size_t i = 0; i < total; i += stride) {
    std::size_t rest = i;
    std::vector<uint64_t>& row = rows.emplace_back();
    for (const OperandKind& source : sources) {
      row.push_back((*source.edges)[rest % source.edges->size()]);
      rest /= source.edges->size();
    }
  }
  std::mt19937_64 random(12345);
  for (int i = 0; i < 1000; ++i) {
    std::vector<uint64_t>& row = rows.emplace_back();
    for (const OperandKind& source : sources) row.push_back(random_bits(source, random));
  }
  return rows;
}

const char* const names[] = {"a", "b", "c", "e"};

// The kernel: d[i] = instruction(a[i], b[i], ...).
std::string kernel_of(const InstructionCase& instruction) {
  std::string text = instruction.text;
  if (text.find("%d") == std::string::npos) {
    text += " %d";
    for (std::size_t i = 0; i < instruction.sources.size(); ++i) text += ", %" + std::to_string(i);
  }
  if (text.front() != '{') text += ";";
  for (std::size_t at = 0; (at = text.find('%', at)) != std::string::npos;) {
    const char which = text[at + 1];
    text.replace(at, 2, which == 'd' ? "d" : names[which - '0']);
  }
  std::string body =
      ".reg .b32 i, n, t, s; .reg .b64 p, o; .reg .pred q;\n"
      "mov.u32 t, %tid.x; mov.u32 s, %ctaid.x; mov.u32 i, %ntid.x; mad.lo.s32 i, i, s, t;\n"
      "ld.param.u32 n, [count]; setp.ge.u32 q, i, n; @q exit;\n";
  std::string parameters = ".param .u32 count, .param .u64 p_d";
  for (std::size_t i = 0; i < instruction.sources.size(); ++i) {
    const OperandKind& kind = instruction.sources[i];
    const std::string name = names[i];
    parameters += ", .param .u64 p_" + name;
    body += ".reg ." + std::string(kind.type) + " " + name + "; ld.param.u64 p, [p_" + name +
            "]; mul.wide.u32 o, i, " + std::to_string(kind.bytes) + "; add.s64 p, p, o;\n";
    body += kind.is_predicate ? "ld.global.u32 t, [p]; setp.ne.s32 " + name + ", t, 0;\n"
                              : "ld.global." + std::string(kind.move) + " " + name + ", [p];\n";
  }
  const OperandKind& result = instruction.result;
  body += ".reg ." + std::string(result.type) + " d;\n" + text +
          "\nld.param.u64 p, [p_d]; mul.wide.u32 o, i, " + std::to_string(result.bytes) +
          "; add.s64 p, p, o;\n";
  body += result.is_predicate ? "selp.u32 t, 1, 0, d; st.global.u32 [p], t;\n"
                              : "st.global." + std::string(result.move) + " [p], d;\n";
  return kernel_text(parameters, body + "ret;");
}

double as_double(const OperandKind& kind, uint64_t bits) {
  return kind.bytes == 4 ? double(from_bits<float>(bits)) : from_bits<double>(bits);
}

std::string shown(const OperandKind& kind, uint64_t bits) {
  char text[80];
  if (kind.is_float) {
    const double value = as_double(kind, bits);
    std::snprintf(text, sizeof(text), " %.17g (%a)", value, value);
  } else {
    const unsigned shift = 64 - 8 * kind.bytes;
    const auto number = static_cast<std::int64_t>(bits << shift) >> shift;
    std::snprintf(text, sizeof(text), " %lld (0x%llx)", static_cast<long long>(number),
                  static_cast<unsigned long long>(bits));
  }
  return text;
}

bool is_right(const InstructionCase& instruction, uint64_t expected, uint64_t found, Inputs in) {
  if (instruction.accept) return instruction.accept(expected, found, in);
  if (instruction.result.is_float && std::isnan(as_double(instruction.result, expected))) {
    return std::isnan(as_double(instruction.result, found));
  }
  return expected == found;
}

void* upload_column(Device& device, const std::vector<std::vector<uint64_t>>& rows,
                    std::size_t column, unsigned bytes) {
  auto* memory = static_cast<std::byte*>(device.allocate(rows.size() * bytes));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(memory + i * bytes, &rows[i][column], bytes);
  }
  return memory;
}

}  // namespace

template <>
const OperandKind& operand_kind<std::uint16_t>() {
  static const OperandKind kind = number<std::uint16_t>("b16", "u16");
  return kind;
}
template <>
const OperandKind& operand_kind<std::int16_t>() {
  static const OperandKind kind = number<std::int16_t>("b16", "u16");
  return kind;
}
template <>
const OperandKind& operand_kind<std::uint32_t>() {
  static const OperandKind kind = number<std::uint32_t>("b32", "u32");
  return kind;
}
template <>
const OperandKind& operand_kind<std::int32_t>() {
  static const OperandKind kind = number<std::int32_t>("b32", "u32");
  return kind;
}
template <>
const OperandKind& operand_kind<std::uint64_t>() {
  static const OperandKind kind = number<std::uint64_t>("b64", "u64");
  return kind;
}
template <>
const OperandKind& operand_kind<std::int64_t>() {
  static const OperandKind kind = number<std::int64_t>("b64", "u64");
  return kind;
}
template <>
const OperandKind& operand_kind<float>() {
  static const OperandKind kind = number<float>("f32", "f32");
  return kind;
}
template <>
const OperandKind& operand_kind<double>() {
  static const OperandKind kind = number<double>("f64", "f64");
  return kind;
}
template <>
const OperandKind& operand_kind<bool>() {
  static const std::vector<uint64_t> edges = {0, 1};
  static const OperandKind kind = {"pred", "u32", 4, true, false, false, &edges};
  return kind;
}

void check_case(const InstructionCase& instruction) {
  SCOPED_TRACE(instruction.text);
  Device device(kernel_of(instruction));
  const auto rows = combinations(instruction.sources);
  const auto count = static_cast<std::uint32_t>(rows.size());
  const unsigned bytes = instruction.result.bytes;
  auto* results = static_cast<std::byte*>(device.allocate(std::size_t{count} * bytes));
  Arguments arguments(count, results);
  for (std::size_t k = 0; k < instruction.sources.size(); ++k) {
    arguments.add(upload_column(device, rows, k, instruction.sources[k].bytes));
  }
  std::vector<uint64_t> expected;
  for (const auto& row : rows) expected.push_back(instruction.expected(row.data()));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    std::memset(results, 0x5a, std::size_t{count} * bytes);
    const Outcome outcome = device.launch(config, "k", {(count + 127) / 128}, {128}, arguments);
    ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
    int wrong = 0;
    for (std::uint32_t i = 0; i < count && wrong < 5; ++i) {
      uint64_t found = 0;
      std::memcpy(&found, results + std::size_t{i} * bytes, bytes);
      if (is_right(instruction, expected[i], found, rows[i].data())) continue;
      ++wrong;
      std::string inputs;
      for (std::size_t k = 0; k < rows[i].size(); ++k) {
        inputs += shown(instruction.sources[k], rows[i][k]);
      }
      ADD_FAILURE() << "of" << inputs << ":" << shown(instruction.result, found) << ", should be"
                    << shown(instruction.result, expected[i]);
    }
    if (wrong != 0) return;
  }
}

}  // namespace ctxbroker::software::exec::testing
