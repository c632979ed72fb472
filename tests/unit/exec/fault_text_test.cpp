// SPDX-License-Identifier: Apache-2.0
// What a fault says: the access, the memory around it, whose it is, and where in the source.
#include <gmock/gmock.h>

#include <array>

#include "memory/owner.hpp"
#include "support.hpp"

namespace ctxbroker::software::exec::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

const char* owner_now = nullptr;

// Memory of three allocations; the kernel accesses an offset from the middle one.
class FaultText : public ::testing::Test {
 protected:
  static constexpr std::size_t bytes = 64, gap = 1024;

  void SetUp() override {
    owner_function = [] { return owner_now; };
    for (std::size_t i = 0; i < 3; ++i) {
      owner_now = names_[i];
      map_.add({begin(i), begin(i) + bytes});
    }
    owner_now = "launcher";
  }
  void TearDown() override { owner_function = nullptr; }

  std::uintptr_t begin(std::size_t i) const {
    return reinterpret_cast<std::uintptr_t>(memory_.data()) + i * gap;
  }
  std::string address(std::size_t i) const {
    char text[32];
    std::snprintf(text, sizeof text, "0x%zx", begin(i));
    return text;
  }

  std::string run(const std::string& body, std::int64_t offset, std::uint64_t base = 0) {
    const auto program = compile(".version 7.5\n.target sm_75\n.address_size 64\n" + body);
    WorkerPool pool(1);
    const Arguments arguments(base == 0 ? begin(1) + static_cast<std::uint64_t>(offset) : base);
    Launch launch;
    launch.kernel = program->find_kernel("k");
    launch.owner = owner_now;
    launch.parameters = arguments.bytes();
    launch.memory = &map_;
    const Outcome outcome = pool.run(launch);
    EXPECT_NE(outcome.fault, Fault::none);
    return outcome.message;
  }
  std::string access(const std::string& instruction, std::int64_t offset, std::uint64_t base = 0) {
    return run(
        ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %a; .reg .b32 %r<4>;\n"
        ".shared .align 4 .b8 shared[16];\nld.param.u64 %a, [p];\n" +
            instruction + "\nret;\n}\n",
        offset, base);
  }

  alignas(256) std::array<std::byte, 3 * gap> memory_{};
  const char* names_[3] = {"low", "middle", "high"};
  MemoryMap map_;
};

TEST_F(FaultText, NamesTheAccessAndWhoLaunchedIt) {
  EXPECT_THAT(access("ld.global.u32 %r1, [%a];", 64),
              HasSubstr("kernel k of tenant launcher, block (0, 0, 0), thread (0, 0, 0): read of 4 "
                        "bytes at illegal address"));
  EXPECT_THAT(access("st.global.u8 [%a], %r1;", 64), HasSubstr("write of 1 byte at"));
  EXPECT_THAT(access("atom.global.add.u32 %r1, [%a], 1;", 64),
              HasSubstr("atomic access of 4 bytes at"));
  EXPECT_THAT(access("st.global.u32 [%a], %r1;", 2), HasSubstr("write of 4 bytes at misaligned"));
}

TEST_F(FaultText, NamesTheNearestMemoryWithItsOwner) {
  EXPECT_THAT(
      access("st.global.u32 [%a], %r1;", 64),
      HasSubstr(", 0 bytes past the end of 64 bytes at " + address(1) + " of tenant middle"));
  EXPECT_THAT(access("st.global.u32 [%a], %r1;", 68), HasSubstr(", 4 bytes past the end of 64"));
  EXPECT_THAT(access("st.global.u32 [%a], %r1;", -4),
              HasSubstr(", 4 bytes before 64 bytes at " + address(1) + " of tenant middle"));
  EXPECT_THAT(access("st.global.u32 [%a], %r1;", static_cast<std::int64_t>(gap) - 8),
              HasSubstr(", 8 bytes before 64 bytes at " + address(2) + " of tenant high"));
  EXPECT_THAT(access("st.global.v4.u32 [%a], {%r1, %r1, %r1, %r1};", 0, begin(2) + bytes),
              HasSubstr(", 0 bytes past the end of 64 bytes at " + address(2) + " of tenant high"));
}

TEST_F(FaultText, AnAccessMayEndBeyondItsMemory) {
  map_.remove(begin(1));
  map_.add({begin(1), begin(1) + 60});
  EXPECT_THAT(access("st.global.v4.u32 [%a], {%r1, %r1, %r1, %r1};", 48),
              HasSubstr(", the last 4 bytes of it past the end of 60 bytes at " + address(1)));
}

TEST_F(FaultText, SaysWhoFreedTheMemory) {
  owner_now = "careless";
  map_.remove(begin(1));
  EXPECT_THAT(access("ld.global.u32 %r1, [%a];", 8),
              HasSubstr(", in 64 bytes at " + address(1) +
                        " of tenant middle, which tenant careless freed"));
  // Memory that is there again is not freed.
  map_.add({begin(1), begin(1) + 8});
  EXPECT_THAT(access("st.global.u32 [%a], %r1;", 8), HasSubstr("freed"));
  owner_now = nullptr;
  map_.remove(begin(1));
  EXPECT_THAT(access("ld.global.u32 %r1, [%a];", 0), HasSubstr("8 bytes at " + address(1)));
  EXPECT_THAT(access("ld.global.u32 %r1, [%a];", 0), HasSubstr("which is freed"));
}

TEST_F(FaultText, RemembersTheLastThousandThatWereFreed) {
  map_.remove(begin(1));
  for (int i = 0; i < 1023; ++i) {
    map_.add({begin(1) + 256, begin(1) + 272});
    map_.remove(begin(1) + 256);
  }
  EXPECT_THAT(access("ld.global.u32 %r1, [%a];", 0), HasSubstr("freed"));
  map_.add({begin(1) + 256, begin(1) + 272});
  map_.remove(begin(1) + 256);
  EXPECT_THAT(access("ld.global.u32 %r1, [%a];", 0), Not(HasSubstr("freed")));
}

TEST_F(FaultText, KnowsNullPointersAndWildOnes) {
  EXPECT_THAT(access("mov.u64 %a, 0; ld.global.u32 %r1, [%a];", 0), HasSubstr(", a null pointer"));
  EXPECT_THAT(access("mov.u64 %a, 16; ld.global.u32 %r1, [%a];", 0),
              HasSubstr("0x10, 16 bytes behind a null pointer"));
  EXPECT_THAT(access("mov.u64 %a, 0x7fffffffffff0000; ld.global.u32 %r1, [%a];", 0),
              HasSubstr(", which is near no memory of this device"));
}

TEST_F(FaultText, NamesOtherMemoryThanGlobal) {
  EXPECT_THAT(
      access("st.shared.u32 [shared+16], %r1;", 0),
      HasSubstr("write of 4 bytes at illegal offset 16 of shared memory, which has 16 bytes"));
  EXPECT_THAT(access("st.shared.u32 [shared+2], %r1;", 0),
              HasSubstr("write of 4 bytes at misaligned offset 2 of shared memory"));
}

TEST_F(FaultText, NoTenantIsNamedWithoutAnOwnerFunction) {
  owner_function = nullptr;
  map_.remove(begin(1));
  map_.add({begin(1), begin(1) + bytes});
  owner_now = nullptr;
  EXPECT_THAT(access("st.global.u32 [%a], %r1;", 64),
              ::testing::AllOf(HasSubstr("kernel k, block"), HasSubstr("64 bytes at " + address(1)),
                               Not(HasSubstr("tenant"))));
}

constexpr const char* with_lines = R"(.func helper(.param .u64 q)
{
.reg .b64 %b; .reg .b32 %r1;
ld.param.u64 %b, [q];
st.global.u32 [%b], %r1;
ret;
}
.visible .entry k(.param .u64 p)
{
.loc	1 6 0
.reg .b64 %a; .reg .b32 %r<4>;
ld.param.u64 %a, [p];
.loc	1 9 3
add.u64 %a, %a, 0;
)";
constexpr const char* files = "\n.file\t1 \"/src/blur.cu\"\n.file\t2 \"/src/tools.cuh\"\n";

TEST_F(FaultText, NamesTheLineOfTheSource) {
  const std::string access = "ld.global.u32 %r1, [%a];\n.loc 1 10 1\nret;\n}\n";
  EXPECT_THAT(run(with_lines + access + files, 64), EndsWith(" (/src/blur.cu:9)"));
  EXPECT_THAT(run(with_lines + (".loc 2 21 5, function_name $L__info_string0, inlined_at 1 22 5\n" +
                                access + files),
                  64),
              EndsWith(" (/src/tools.cuh:21, inlined at /src/blur.cu:22)"));
}

// The line of another function, or of a file without a name, would be wrong.
TEST_F(FaultText, NamesTheLineOfThePtxWhereTheSourceIsUnknown) {
  const std::string access = "ld.global.u32 %r1, [%a];\nret;\n}\n";
  EXPECT_THAT(run(with_lines + access, 64), EndsWith(" (PTX line 18)"));
  EXPECT_THAT(run(with_lines + (".loc 7 1 1\n" + access + files), 64), EndsWith(" (PTX line 19)"));
  EXPECT_THAT(run(with_lines + (".loc 1 0 0\n" + access + files), 64), EndsWith(" (PTX line 19)"));
  const std::string behind =
      "bra END;\nEND: ret;\n}\n.visible .entry other()\n{\nret;\n}\n.func last(.param .u64 q)\n{\n"
      ".reg .b64 %b; .reg .b32 %r1;\nld.param.u64 %b, [q];\nst.global.u32 [%b], %r1;\nret;\n}\n";
  const std::string call = "{.param .b64 q; st.param.b64 [q], %a; call helper, (q);}\nret;\n}\n";
  EXPECT_THAT(run(with_lines + call + files + behind.substr(behind.find(".visible")), 64),
              EndsWith(" (PTX line 8)"));
}

TEST_F(FaultText, UnprintableFileNameIsCleaned) {
  const std::string access = "ld.global.u32 %r1, [%a];\nret;\n}\n";
  EXPECT_THAT(run(with_lines + access + "\n.file 1 \"\x1b[31mred\", 1, 2\n", 64),
              EndsWith(" (?[31mred:9)"));
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
