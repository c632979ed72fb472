// SPDX-License-Identifier: Apache-2.0
// Instructions: opcodes, modifiers, guards and every form of operand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ptx_testing.hpp"

namespace ctxbroker::software::ptx {
namespace {

using Kind = Operand::Kind;
using ::testing::ElementsAre;

TEST(Instruction, OpcodeAndModifiers) {
  const Instruction instruction = instruction_of("setp.geu.f32 %p1, %f1, %f2;");
  EXPECT_EQ(instruction.opcode, "setp");
  EXPECT_THAT(instruction.modifiers, ElementsAre("geu", "f32"));
  EXPECT_EQ(instruction.full_name(), "setp.geu.f32");
  EXPECT_EQ(instruction.operands.size(), 3U);
  EXPECT_FALSE(instruction.guard.has_value());
}

TEST(Instruction, ModifiersWithColonsAndDigits) {
  EXPECT_THAT(instruction_of("ld.global.L1::evict_last.L2::128B.v4.f32 %f1, [%rd1];").modifiers,
              ElementsAre("global", "L1::evict_last", "L2::128B", "v4", "f32"));
  EXPECT_THAT(instruction_of("tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%rd1, {%f5,%f6}];").modifiers,
              ElementsAre("2d", "v4", "f32", "f32"));
  EXPECT_THAT(
      instruction_of("cp.async.bulk.shared::cluster.mbarrier::complete_tx::bytes [%r1], %r2;")
          .modifiers,
      ElementsAre("async", "bulk", "shared::cluster", "mbarrier::complete_tx::bytes"));
}

TEST(Instruction, WithoutOperands) {
  EXPECT_TRUE(instruction_of("ret;").operands.empty());
  EXPECT_TRUE(instruction_of("membar.gl;").operands.empty());
}

TEST(Instruction, Guards) {
  const Instruction plain = instruction_of("@%p1 bra L; L:");
  ASSERT_TRUE(plain.guard.has_value());
  EXPECT_EQ(plain.guard->predicate, "%p1");
  EXPECT_FALSE(plain.guard->negated);
  EXPECT_TRUE(instruction_of("@!%p1 bra L; L:").guard->negated);
  EXPECT_EQ(kernel_of("{ .reg .pred q; @q ret; }").body[0].guard->predicate, "q@1");
}

TEST(Operand, Registers) {
  const auto operands = instruction_of("add.s32 %r1, %r2, %tid.x;").operands;
  for (const Operand& operand : operands) EXPECT_EQ(operand.kind, Kind::reg);
  EXPECT_EQ(operands[2].name, "%tid.x");
  const Instruction named_register = kernel_of(".reg .b32 t; mov.b32 t, WARP_SZ;").body[0];
  EXPECT_EQ(named_register.operands[0].kind, Kind::reg);
  EXPECT_EQ(named_register.operands[1].kind, Kind::integer);
  EXPECT_EQ(named_register.operands[1].integer, 32U);
}

TEST(Operand, ElementsOfArrays) {
  const Operand plain = instruction_of("ld.shared.u32 %r1, smem[3];").operands[1];
  EXPECT_EQ(plain.kind, Kind::symbol);
  EXPECT_TRUE(plain.is_indexed);
  EXPECT_EQ(plain.offset, 3);
  EXPECT_EQ(plain.index, "");
  const Operand varied = instruction_of("ld.shared.u32 %r1, smem[%r2+1];").operands[1];
  EXPECT_EQ(varied.offset, 1);
  EXPECT_EQ(varied.index, "%r2");
  EXPECT_FALSE(instruction_of("ld.shared.u32 %r1, [smem+3];").operands[1].is_indexed);
}

TEST(Operand, ComponentsOfVectorsInScopes) {
  const Function kernel = kernel_of("{ .reg .v2 .f32 v; mov.f32 v.x, v.y; }");
  EXPECT_EQ(kernel.body[0].operands[0].name, "v@1.x");
}

TEST(Operand, Numbers) {
  EXPECT_EQ(instruction_of("mov.u32 %r1, 4294967295;").operands[1].integer, 4294967295U);
  EXPECT_EQ(instruction_of("mov.u32 %r1, -5;").operands[1].integer, static_cast<std::uint64_t>(-5));
  EXPECT_EQ(instruction_of("mov.u32 %r1, 2*3+1;").operands[1].integer, 7U);
  EXPECT_EQ(instruction_of("mov.u32 %r1, (1<<4)-1;").operands[1].integer, 15U);
  const Operand single = instruction_of("mov.f32 %f1, 0f3F800000;").operands[1];
  EXPECT_EQ(single.kind, Kind::floating);
  EXPECT_TRUE(single.is_f32);
  EXPECT_EQ(single.floating_bits, 0x3F800000U);
  const Operand wide = instruction_of("mov.f64 %rd1, 0dBFF0000000000000;").operands[1];
  EXPECT_FALSE(wide.is_f32);
  EXPECT_EQ(wide.floating_bits, 0xBFF0000000000000U);
}

TEST(Operand, Addresses) {
  const auto address = [](const std::string& text) {
    Operand operand = instruction_of("ld.u32 %r1, " + text + ";").operands[1];
    EXPECT_EQ(operand.kind, Kind::address) << text;
    return operand;
  };
  EXPECT_EQ(address("[%rd1]").name, "%rd1");
  EXPECT_EQ(address("[%rd1+8]").offset, 8);
  EXPECT_EQ(address("[%rd1+-8]").offset, -8);
  EXPECT_EQ(address("[%rd1-8]").offset, -8);
  EXPECT_EQ(address("[ smem + 4 * 2 ]").offset, 8);
  EXPECT_EQ(address("[smem]").name, "smem");
  EXPECT_EQ(address("[k_param_0]").name, "k_param_0");
  EXPECT_EQ(address("[elsewhere+4]").name, "elsewhere");
  EXPECT_EQ(address("[64]").name, "");
  EXPECT_EQ(address("[64]").offset, 64);
}

TEST(Operand, AddressesWithCoordinates) {
  const Operand address =
      instruction_of("tex.2d.v4.f32.f32 {%f1, _, _, %f2}, [%rd1, {%f3, %f4}];").operands[1];
  EXPECT_EQ(address.kind, Kind::address);
  EXPECT_EQ(address.name, "%rd1");
  ASSERT_EQ(address.elements.size(), 1U);
  EXPECT_EQ(address.elements[0].kind, Kind::vector);
}

TEST(Operand, Symbols) {
  const Operand plain = instruction_of("mov.u32 %r1, smem;").operands[1];
  EXPECT_EQ(plain.kind, Kind::symbol);
  EXPECT_EQ(plain.name, "smem");
  const Operand moved = instruction_of("mov.u64 %rd1, elsewhere+16;").operands[1];
  EXPECT_EQ(moved.kind, Kind::symbol);
  EXPECT_EQ(moved.offset, 16);
}

TEST(Operand, Vectors) {
  const Operand vector = instruction_of("mov.b64 %rd1, {%r1, 7};").operands[1];
  EXPECT_EQ(vector.kind, Kind::vector);
  ASSERT_EQ(vector.elements.size(), 2U);
  EXPECT_EQ(vector.elements[0].kind, Kind::reg);
  EXPECT_EQ(vector.elements[1].kind, Kind::integer);
  const Operand sink = instruction_of("mov.b64 {_, %r1}, %rd1;").operands[0];
  EXPECT_EQ(sink.elements.at(0).kind, Kind::sink);
}

TEST(Operand, PairsOfRegisters) {
  const Operand pair = instruction_of("setp.eq.s32 %p1|%p2, %r1, %r2;").operands[0];
  EXPECT_EQ(pair.kind, Kind::reg_pair);
  ASSERT_EQ(pair.elements.size(), 2U);
  EXPECT_EQ(pair.elements[0].name, "%p1");
  EXPECT_EQ(pair.elements[1].name, "%p2");
  const Operand half = instruction_of("shfl.sync.idx.b32 %r1|_, %r2, 0, 31, -1;").operands[0];
  EXPECT_EQ(half.elements.at(1).kind, Kind::sink);
}

TEST(Operand, NegatedPredicates) {
  const Operand operand = instruction_of("setp.eq.and.s32 %p1, %r1, %r2, !%p3;").operands[3];
  EXPECT_EQ(operand.kind, Kind::reg);
  EXPECT_TRUE(operand.negated);
  EXPECT_EQ(operand.name, "%p3");
}

TEST(Operand, CallsOfNamedFunctions) {
  const Instruction call = instruction_of("call.uni (%r1), f, (%r2, 3, smem);");
  ASSERT_EQ(call.operands.size(), 3U);
  EXPECT_EQ(call.operands[0].kind, Kind::list);
  EXPECT_EQ(call.operands[1].kind, Kind::symbol);
  EXPECT_EQ(call.operands[1].name, "f");
  ASSERT_EQ(call.operands[2].elements.size(), 3U);
  EXPECT_EQ(call.operands[2].elements[2].kind, Kind::symbol);
  EXPECT_EQ(instruction_of("call f;").operands.size(), 1U);
  EXPECT_TRUE(instruction_of("call f, ();").operands.at(1).elements.empty());
}

}  // namespace
}  // namespace ctxbroker::software::ptx
