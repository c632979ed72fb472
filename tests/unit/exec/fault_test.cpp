// SPDX-License-Identifier: Apache-2.0
// What a kernel may not do, how it is told, and how it is stopped.
#include <chrono>
#include <thread>

#include "ptx/parser.hpp"
#include "support.hpp"

namespace ctxbroker::software::exec::testing {
namespace {

using ::testing::Test;

std::string text(const std::string& body, const std::string& before = "") {
  return kernel_text(".param .u64 data, .param .u32 at", R"(
    .reg .b32 %r<10>; .reg .b64 %rd<10>; .reg .pred %p<4>; .local .align 8 .b8 stack[32];
    .shared .align 8 .b8 smem[64];
    ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [at]; mov.u32 %r2, %tid.x;
    mul.wide.s32 %rd2, %r1, 1; add.s64 %rd3, %rd1, %rd2;
)" + body,
                     before);
}

// One thread of the second block does it: number 70 of its block, at line 14 of the text.
void expect_fault(const std::string& access, std::int32_t at, Fault fault,
                  const std::string& part_of_message) {
  SCOPED_TRACE(access + " at " + std::to_string(at));
  Device device(
      text("mov.u32 %r3, %ctaid.x; setp.ne.u32 %p1, %r3, 1; @%p1 ret;\n"
           "setp.ne.u32 %p1, %r2, 70; @%p1 ret;\n" +
           access + " ret;"));
  auto* data = device.upload(std::vector<std::uint32_t>(16));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    const Outcome outcome = device.launch(config, "k", {2}, {128}, Arguments(data, at));
    EXPECT_EQ(outcome.fault, fault);
    EXPECT_NE(outcome.message.find("kernel k, block (1, 0, 0), thread (70, 0, 0)"),
              std::string::npos)
        << outcome.message;
    EXPECT_NE(outcome.message.find(part_of_message), std::string::npos) << outcome.message;
    EXPECT_NE(outcome.message.find("PTX line 14"), std::string::npos) << outcome.message;
    // The device goes on.
    EXPECT_EQ(device.launch(config, "k", {1}, {128}, Arguments(data, at)).fault, Fault::none);
  }
}

TEST(Faults, GlobalAccessesOutsideOfAllocations) {
  const std::string illegal = "illegal address";
  expect_fault("ld.global.u32 %r5, [%rd3];", 64, Fault::illegal_address, illegal);
  expect_fault("ld.global.u32 %r5, [%rd3];", -4, Fault::illegal_address, illegal);
  expect_fault("st.global.u32 [%rd3], %r5;", 64, Fault::illegal_address, illegal);
  expect_fault("ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd3];", 64, Fault::illegal_address,
               illegal);
  expect_fault("ld.u32 %r5, [8];", 0, Fault::illegal_address, "0x8, ");
  expect_fault("mov.u64 %rd4, -8; ld.global.u64 %rd5, [%rd4];", 0, Fault::illegal_address, illegal);
  expect_fault("atom.global.add.u32 %r5, [%rd3], 1;", 64, Fault::illegal_address, illegal);
}

// An offset that wraps round leads to no memory before the space.
TEST(Faults, AccessesBeforeASpaceAreFaults) {
  const std::string wide = "{%rd5, %rd6}, ";
  expect_fault("ld.shared.v2.u64 " + wide + "[smem-16];", 0, Fault::illegal_address, "offset -16");
  expect_fault("ld.local.v2.u64 " + wide + "[stack-16];", 0, Fault::illegal_address, "offset -16");
  expect_fault("mov.u64 %rd4, data; ld.param.v2.u64 " + wide + "[%rd4-16];", 0,
               Fault::illegal_address, "of the parameters");
}

// Compilers widen reads: up to the next boundary of 16 bytes there is something on a GPU. Here it
// is zero.
TEST(Faults, OnlyReadsMayEndBeyondAnAllocation) {
  const std::string store =
      "add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, %r7; add.u32 %r5, %r5, %r8;"
      "st.global.u32 [%rd1], %r5; ret;";
  const std::string wide = "{%r5, %r6, %r7, %r8}, ";
  const std::string reads[] = {
      "ld.global.v4.u32 " + wide + "[%rd3];", "ld.global.nc.v4.u32 " + wide + "[%rd3];",
      "ld.v4.u32 " + wide + "[%rd3];",
      "mov.u32 %r7, 0; mov.u32 %r8, 0; mov.u32 %r6, 13; ld.global.v2.u32 {%r5, _}, [%rd3+8];"};
  for (const std::string& read : reads) {
    SCOPED_TRACE(read);
    Device device(text(read + store));
    for (const Config& config : all_configs()) {
      for (const std::uint32_t threads : {1U, 9U, 64U, 128U}) {
        SCOPED_TRACE(name_of(config) + ", " + std::to_string(threads));
        auto* data = device.upload(std::vector<std::uint32_t>{1, 2, 3, 4, 5, 6, 7});
        data[7] = 999;  // behind the allocation: never read
        const Outcome outcome = device.launch(config, "k", {1}, {threads}, Arguments(data, 16));
        EXPECT_EQ(outcome.fault, Fault::none) << outcome.message;
        EXPECT_EQ(data[0], reads[3] == read ? 7U + 13U : 18U);
      }
    }
  }
  // Beyond that boundary, and written.
  Device beyond(text("ld.global.v4.u32 " + wide + "[%rd3];" + store));
  Device written(text("st.global.v4.u32 [%rd3], " + wide.substr(0, 20) + "; ret;"));
  Device added(text("atom.global.add.u64 %rd5, [%rd3], 1; ret;"));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    auto* data = beyond.upload(std::vector<std::uint32_t>(7));
    EXPECT_EQ(beyond.launch(config, "k", {1}, {1}, Arguments(data, 32)).fault,
              Fault::illegal_address);
    data = written.upload(std::vector<std::uint32_t>(7));
    EXPECT_EQ(written.launch(config, "k", {1}, {1}, Arguments(data, 16)).fault,
              Fault::illegal_address);
    data = added.upload(std::vector<std::uint32_t>(7));
    EXPECT_EQ(added.launch(config, "k", {1}, {1}, Arguments(data, 24)).fault,
              Fault::illegal_address);
  }
}

TEST(Faults, MisalignedAccesses) {
  const std::string misaligned = "misaligned address";
  expect_fault("ld.global.u32 %r5, [%rd3];", 2, Fault::misaligned_address, misaligned);
  expect_fault("st.global.u64 [%rd3], %rd5;", 4, Fault::misaligned_address, misaligned);
  expect_fault("ld.global.v2.u32 {%r5, %r6}, [%rd3];", 4, Fault::misaligned_address, misaligned);
  expect_fault("ld.shared.u32 %r5, [%r1];", 2, Fault::misaligned_address, "misaligned offset 2");
  expect_fault("ld.local.u64 %rd5, [%rd2];", 4, Fault::misaligned_address, "misaligned offset 4");
}

TEST(Faults, SharedAndLocalAccessesOutOfRange) {
  expect_fault("ld.shared.u32 %r5, [%r1];", 64, Fault::illegal_address, "illegal offset 64 of");
  expect_fault("st.shared.u32 [%r1], %r5;", -4, Fault::illegal_address, "illegal offset -4 of");
  expect_fault("ld.shared.u64 %rd5, [%rd2];", 1 << 20, Fault::illegal_address,
               "illegal offset 1048576 of");
  expect_fault("ld.local.u32 %r5, [%rd2];", 32, Fault::illegal_address, "illegal offset 32 of");
  expect_fault("st.local.u32 [%rd2], %r5;", -4, Fault::illegal_address, "illegal offset -4");
  // The local memory of another thread.
  expect_fault("mov.u64 %rd4, stack; cvta.local.u64 %rd4, %rd4; ld.u32 %r5, [%rd4+32];", 0,
               Fault::illegal_address, "illegal");
  expect_fault("atom.shared.add.u32 %r5, [%r1], 1;", 64, Fault::illegal_address,
               "illegal offset 64 of");
}

TEST(Faults, Traps) {
  expect_fault("trap;", 0, Fault::trap, "trap");
  expect_fault("mov.u32 %r1, 16; bar.sync %r1;", 0, Fault::trap, "trap");
}

// As nvcc writes assert(). The message is CUDA's.
TEST(Faults, FailedAssertsSayWhatFailedWhere) {
  const std::string before = R"(
.extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);
.global .align 1 .b8 expression[6] = {120, 32, 60, 32, 55};
.global .align 1 .b8 file[5] = {97, 46, 99, 117};
)";
  Device device(text(R"(
    setp.ne.u32 %p1, %r2, 70; @%p1 ret;
    mov.u64 %rd5, expression; cvta.global.u64 %rd6, %rd5;
    mov.u64 %rd7, file; cvta.global.u64 %rd8, %rd7;
    { .param .b64 param0; st.param.b64 [param0+0], %rd6;
      .param .b64 param1; st.param.b64 [param1+0], %rd8;
      .param .b32 param2; st.param.b32 [param2+0], 33;
      .param .b64 param3; st.param.b64 [param3+0], %rd1;
      .param .b64 param4; st.param.b64 [param4+0], 1;
      call.uni __assertfail, (param0, param1, param2, param3, param4); }
    ret;)",
                     before));
  auto* function = device.upload(std::vector<char>{'k', '(', ')', 0});
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    const Outcome outcome = device.launch(config, "k", {1}, {128}, Arguments(function, 0));
    EXPECT_EQ(outcome.fault, Fault::assertion);
    EXPECT_EQ(outcome.message,
              "a.cu:33: k(): block: [0,0,0], thread: [70,0,0] Assertion `x < 7` failed.");
  }
  for (const Config& config : all_configs()) {
    const Outcome outcome = device.launch(config, "k", {1}, {128}, Arguments(nullptr, 0));
    EXPECT_EQ(outcome.fault, Fault::assertion);
    EXPECT_NE(outcome.message.find("a.cu:33: ?: block"), std::string::npos) << outcome.message;
  }
}

TEST(Faults, WholeGroupsOutOfBoundsAreFoundToo) {
  // All 64 lanes contiguous, the last ones beyond the end.
  Device device(
      text("mul.wide.u32 %rd4, %r2, 4; add.s64 %rd3, %rd3, %rd4;"
           "st.global.u32 [%rd3], %r2; ret;"));
  auto* data = device.upload(std::vector<std::uint32_t>(60));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    const Outcome outcome = device.launch(config, "k", {1}, {64}, Arguments(data, 0));
    EXPECT_EQ(outcome.fault, Fault::illegal_address);
    EXPECT_NE(outcome.message.find("thread (60, 0, 0)"), std::string::npos) << outcome.message;
    EXPECT_EQ(data[59], 59U);
  }
}

TEST(Faults, FreedMemoryIsGone) {
  const std::string ptx = text("ld.global.u32 %r5, [%rd3]; ret;");
  const auto program = compile(ptx);
  MemoryMap map;
  alignas(16) std::uint32_t data[4] = {};
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  map.add({begin, begin + sizeof(data)});
  WorkerPool pool(1);
  const Arguments arguments(static_cast<void*>(data), 0);
  Launch launch;
  launch.kernel = program->find_kernel("k");
  launch.parameters = arguments.bytes();
  launch.memory = &map;
  EXPECT_EQ(pool.run(launch).fault, Fault::none);
  map.remove(begin);
  EXPECT_EQ(pool.run(launch).fault, Fault::illegal_address);
}

TEST(Faults, BarriersThatCannotOpen) {
  // Half of the block waits at barrier 0, the other half at barrier 1.
  Device device(
      text("and.b32 %r3, %r2, 1; setp.eq.u32 %p1, %r3, 0; @%p1 bra OTHER;\n"
           "bar.sync 0; ret;\nOTHER: bar.sync 1; ret;"));
  for (const Config& config : all_configs()) {
    for (const std::uint32_t block : {2U, 64U, 128U}) {
      SCOPED_TRACE(name_of(config));
      const Outcome outcome =
          device.launch(config, "k", {3}, {block}, Arguments(std::uint64_t{0}, 0));
      EXPECT_EQ(outcome.fault, Fault::deadlock);
      EXPECT_NE(outcome.message.find("barrier"), std::string::npos) << outcome.message;
    }
  }
}

TEST(Faults, EndlessKernelsCanBeStopped) {
  Device device(text("FOREVER: add.u32 %r3, %r3, 1; bra FOREVER;"));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    std::atomic<bool> stop = false;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      stop = true;
    });
    const Outcome outcome =
        device.launch(config, "k", {8}, {100}, Arguments(std::uint64_t{0}, 0), 0, &stop);
    other.join();
    EXPECT_EQ(outcome.fault, Fault::stopped);
    EXPECT_NE(outcome.message.find("kernel k was stopped"), std::string::npos);
  }
}

// --- refused when loaded ---------------------------------------------------------------------

void expect_refused(const std::string& ptx, std::uint32_t line, const std::string& message) {
  SCOPED_TRACE(ptx);
  try {
    compile(ptx);
    ADD_FAILURE() << "was accepted";
  } catch (const ptx::SyntaxError& error) {
    EXPECT_EQ(error.line(), line) << error.what();
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

std::string with_instruction(const std::string& instruction) {
  return kernel_text(".param .u64 p",
                     ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;"
                     ".reg .b16 %h<9>; .reg .pred %p<9>;\n" +
                         instruction + "\nret;");
}

TEST(Refused, InstructionsThatTheEnginesDoNotHave) {
  const std::string says = "instruction not supported by the software device: ";
  expect_refused(with_instruction("div.f16 %h1, %h2, %h3;"), 8, says + "div.f16");
  expect_refused(with_instruction("add.sat.u32 %r1, %r2, %r3;"), 8, says + "add.sat.u32");
  expect_refused(with_instruction("mul.wide.u64 %rd1, %rd2, %rd3;"), 8, says + "mul.wide.u64");
  expect_refused(with_instruction("add.rn.s32 %r1, %r2, %r3;"), 8, says + "add.rn.s32");
  expect_refused(with_instruction("ex2.f32 %f1, %f2;"), 8, says + "ex2.f32");
}

// Parameters at a fixed offset are checked when the module is loaded: p has 8 bytes.
TEST(Refused, ParameterReadThatIsNotWhollyInsideTheParameters) {
  const std::string says = " reads outside of the kernel's parameters";
  for (const std::string address : {"[p-32]", "[p-4096]", "[p]", "[p+32]"}) {
    expect_refused(with_instruction("ld.param.v4.u64 {%rd1,%rd2,%rd3,%rd4}, " + address + ";"), 8,
                   says);
  }
  for (const std::string address :
       {"[p-8]", "[p+8]", "[p+4]", "[p-9223372036854775808]", "[p+9223372036854775800]"}) {
    expect_refused(with_instruction("ld.param.u64 %rd1, " + address + ";"), 8, says);
  }
  expect_refused(with_instruction("ld.param.u32 %r1, [p-4];"), 8, says);
  EXPECT_NO_THROW(compile(with_instruction("ld.param.u64 %rd1, [p];"))) << "the control";
  EXPECT_NO_THROW(compile(with_instruction("ld.param.u32 %r1, [p+4];"))) << "the control";
}

// By the full name and at the line, as soon as the module is loaded.
TEST(Refused, TensorCoresAsynchronousCopiesAndClusters) {
  // NOLINTBEGIN(bugprone-suspicious-missing-comma): long instructions
  for (const std::string instruction : {
           "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, "
           "[%rd1], %r1",
           "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, "
           "{%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, "
           "{%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}",
           "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], "
           "{%f1,%f2,%f3,%f4,%f5,%f6,%f7,%f8}, %r1",
           "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1,%f2,%f3,%f4}, "
           "{%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4}",
           "mma.sp.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1,%r2}, {%r1,%r2}, {%r1,%r2}, "
           "{%r1,%r2}, %r3, 0x0",
           "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2]",
           "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r1}",
           "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2",
           "cp.async.ca.shared.global [%r1], [%rd1], 4",
           "cp.async.cg.shared.global [%r1], [%rd1], 16",
           "cp.async.commit_group",
           "cp.async.wait_group 0",
           "cp.async.wait_all",
           "cp.async.mbarrier.arrive.shared.b64 [%r1]",
           "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, "
           "[%r3]",
           "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], "
           "[%rd1, {%r2}], [%r3]",
           "cp.async.bulk.commit_group",
           "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], %r2",
           "mbarrier.init.shared.b64 [%r1], 1",
           "mbarrier.inval.shared.b64 [%r1]",
           "mbarrier.arrive.shared::cta.b64 %rd1, [%r1]",
           "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], %r2",
           "mbarrier.test_wait.shared.b64 %p1, [%r1], %rd1",
           "mbarrier.try_wait.shared.b64 %p1, [%r1], %rd1",
           "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2",
           "griddepcontrol.wait",
           "griddepcontrol.launch_dependents",
           "barrier.cluster.arrive.aligned",
           "barrier.cluster.wait.aligned",
           "mapa.shared::cluster.u32 %r1, %r2, %r3",
           "getctarank.shared::cluster.u32 %r1, %r2",
           "elect.sync %r1|%p1, -1",
           "setmaxnreg.inc.sync.aligned.u32 40",
           "wgmma.fence.sync.aligned",
           "wgmma.commit_group.sync.aligned",
           "wgmma.wait_group.sync.aligned 0",
       }) {
    // NOLINTEND(bugprone-suspicious-missing-comma)
    const std::string name = instruction.substr(0, instruction.find(' '));
    expect_refused(with_instruction("add.u32 %r1, %r2, %r3;\n" + instruction + ";"), 9,
                   "instruction not supported by the software device: " + name);
  }
}

TEST(Refused, ConstantsOutOfRange) {
  const std::string between = "must be between 0 and ";
  for (const std::string instruction :
       {"bfe.u32 %r1, %r2, 256, 1", "bfe.s64 %rd1, %rd2, 1, 300", "bfe.u32 %r1, %r2, -1, 1",
        "bfi.b32 %r1, %r2, %r3, 256, 1", "bfi.b64 %rd1, %rd2, %rd3, 0, 256"}) {
    expect_refused(with_instruction(instruction + ";"), 8, between + "255, not ");
  }
  expect_refused(with_instruction("bar.sync 16;"), 8, between + "15, not 16");
  expect_refused(with_instruction("bar.red.popc.u32 %r1, 16, %p1;"), 8, between + "15, not 16");
  expect_refused(with_instruction("bar.sync 0, 33;"), 8, "a multiple of 32, not 33");
  expect_refused(with_instruction("lop3.b32 %r1, %r2, %r3, %r4, %r5;"), 8, "must be a constant");
}

TEST(Refused, NamesAndTypesThatDoNotFit) {
  expect_refused(with_instruction("add.u32 %r1, %r2, %r99;"), 8, "unknown register '%r99'");
  expect_refused(with_instruction("mov.u32 %r1, %nonsense;"), 8, "%nonsense");
  expect_refused(with_instruction("ld.global.u32 %r1, [nothing];"), 8, "'nothing'");
  expect_refused(with_instruction("bra NOWHERE;"), 8, "NOWHERE");
  expect_refused(with_instruction("add.u64 %rd1, %r2, %rd3;"), 8,
                 "type mismatch: '%r2' is 32 bits, add.u64 needs 64 bits");
  expect_refused(with_instruction("@%r1 ret;"), 8, "'%r1' is not a predicate");
  expect_refused(with_instruction("setp.eq.u32 %r1, %r2, %r3;"), 8, "type mismatch");
  expect_refused(with_instruction("ld.global.u64 %r1, [%rd1];"), 8, "type mismatch");
  expect_refused(with_instruction("ld.global.u32 %r1, [%r2];"), 8, "type mismatch");
  expect_refused(with_instruction("add.u32 %r1, %r2;"), 8, "too few operands");
  expect_refused(with_instruction("add.f32 %f1, %f2, 3;"), 8, "floating-point constant");
  expect_refused(with_instruction("ld.param.u32 %r1, [p+8];"), 8, "outside");
  expect_refused(with_instruction("call unknown;"), 8, "unknown");
}

TEST(Refused, InitialValuesThatAreNoAddressesOfVariables) {
  expect_refused(
      kernel_text("", "ret;", ".extern .func f();\n.global .u64 table[2] = {0, f};"), 5,
      "the initial value of 'table' is the address of 'f', a function that is not defined");
  expect_refused(kernel_text("", "ret;", ".shared .u32 s[4];\n.global .u64 x = s;"), 5,
                 "the initial value of 'x' is the address of 's', which is no variable");
}

TEST(Refused, VectorsWhereOneRegisterIsNeeded) {
  expect_refused(with_instruction(".reg .v2 .u32 v; add.u32 v, %r1, %r1;"), 8,
                 "the destination of add.u32 must be a register");
  expect_refused(with_instruction(".reg .v4 .u32 v; mov.v2.u32 v, {%r1, %r2};"), 8,
                 "mov.v2.u32 needs two vectors of that size");
}

TEST(Refused, CallsOfWhatIsNotThere) {
  expect_refused(kernel_text("", "call k, ();\nret;"), 7, "call of the kernel 'k'");
  expect_refused(kernel_text("", "call outside, ();\nret;", ".extern .func outside();"), 7,
                 "Unresolved extern function 'outside'");
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
