// SPDX-License-Identifier: Apache-2.0
// The module room's parts that need no driver.
#include <elf.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ctxbroker/error.hpp"
#include "module/image_error.hpp"
#include "module/jit_call.hpp"
#include "module/kernel_names.hpp"
#include "module/runtime_compiler.hpp"
#include "module/stored_image.hpp"
#include "module/use_gate.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const void* data, std::size_t size) {
  return {static_cast<const std::byte*>(data), size};
}
std::span<const std::byte> bytes_of(std::string_view text) {
  return bytes_of(text.data(), text.size());
}

std::string refusal(std::span<const std::byte> image) {
  try {
    store_image(image, "module \"blur\"");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kernel_image);
    EXPECT_THAT(error.what(), HasSubstr("module \"blur\" cannot be loaded"));
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

constexpr std::string_view small_ptx =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry run()\n{\n  ret;\n}\n";

TEST(StoredImageTest, TextIsTerminatedAndDescribed) {
  const auto image = store_image(bytes_of(small_ptx), "module");
  ASSERT_EQ(image->bytes.size(), small_ptx.size() + 1);
  EXPECT_STREQ(reinterpret_cast<const char*>(image->bytes.data()), small_ptx.data());
  EXPECT_EQ(image->text(), small_ptx);
  EXPECT_TRUE(image->has_kernel("run", 90));
  EXPECT_FALSE(image->has_kernel("run", 70)) << "not for that device";
  EXPECT_FALSE(image->has_kernel("walk", 90));
  EXPECT_FALSE(image->has_memory());
}

TEST(StoredImageTest, VariablesThatKernelsCanWriteAreMemory) {
  const std::string writable = std::string(small_ptx) + ".visible .global .f32 gain;\n";
  EXPECT_TRUE(store_image(bytes_of(writable), "module")->has_memory());
  const std::string constant = std::string(small_ptx) + ".visible .const .f32 gain = 0f3F800000;\n";
  EXPECT_FALSE(store_image(bytes_of(constant), "module")->has_memory());
  EXPECT_TRUE(store_image(bytes_of("?"), "module")->has_memory()) << "nobody knows";
}

TEST(StoredImageTest, EqualBytesAreKeptOnce) {
  const std::string copy(small_ptx), other = copy + "\n";
  const auto image = store_image(bytes_of(small_ptx), "module");
  EXPECT_EQ(store_image(bytes_of(copy), "another"), image);
  EXPECT_NE(store_image(bytes_of(other), "another"), image);
}

TEST(StoredImageTest, ShortGarbageIsLeftToTheDriver) {
  EXPECT_EQ(store_image(bytes_of("x"), "module")->bytes.size(), 2u);
}

TEST(StoredImageTest, AFatbinMustHaveItsWholeLength) {
  struct {
    std::uint32_t magic = 0xBA55ED50;
    std::uint16_t version = 1, header_bytes = 16;
    std::uint64_t content_bytes = 16;
    std::uint64_t content[2] = {1, 2};
  } fatbin;
  EXPECT_THAT(refusal(bytes_of(&fatbin, sizeof fatbin - 1)),
              AllOf(HasSubstr("truncated"), HasSubstr("it is 31 bytes long")));
  EXPECT_THAT(refusal(bytes_of(&fatbin, 8)), HasSubstr("truncated"));
  fatbin.content_bytes = ~std::uint64_t{0};
  EXPECT_THAT(refusal(bytes_of(&fatbin, sizeof fatbin)), HasSubstr("corrupt"));
}

TEST(StoredImageTest, AnElfFilesTablesMustBeInside) {
  struct {
    Elf64_Ehdr header{};
    Elf64_Shdr sections[2]{};
  } elf;
  std::memcpy(elf.header.e_ident, ELFMAG, SELFMAG);
  elf.header.e_ident[EI_CLASS] = ELFCLASS64;
  elf.header.e_machine = 190;
  elf.header.e_flags = 75 | 75 << 16;
  elf.header.e_shoff = sizeof(Elf64_Ehdr);
  elf.header.e_shentsize = sizeof(Elf64_Shdr);
  elf.header.e_shnum = 2;
  EXPECT_THAT(refusal(bytes_of(&elf, sizeof elf - 1)), HasSubstr("truncated"));
  EXPECT_THAT(refusal(bytes_of(&elf, 20)), HasSubstr("truncated"));
}

// ---- The run-time compiler -------------------------------------------------------------------

TEST(CompilerPlacesTest, CompilerIsLookedForByTheLoaderThenInToolkits) {
  struct Variable {
    const char* name;
    std::optional<std::string> before;
    Variable(const char* its_name, const char* value) : name(its_name) {
      if (const char* was = std::getenv(name)) before = was;
      value != nullptr ? setenv(name, value, 1) : unsetenv(name);
    }
    ~Variable() { before ? setenv(name, before->c_str(), 1) : unsetenv(name); }
  };
  const Variable home("CUDA_HOME", "/opt/my cuda"), path("CUDA_PATH", "not/absolute");
  {
    const Variable named("CTXBROKER_NVRTC", nullptr);
    const std::vector<std::string> places = compiler_candidates(12080);
    const std::vector<std::string> first(places.begin(), places.begin() + 8);
    EXPECT_THAT(first,
                ElementsAre("libnvrtc.so.12", "libnvrtc.so.13", "/opt/my cuda/lib64/libnvrtc.so.12",
                            "/opt/my cuda/lib64/libnvrtc.so.13", "/opt/my cuda/lib/libnvrtc.so.12",
                            "/opt/my cuda/lib/libnvrtc.so.13",
                            "/opt/my cuda/targets/x86_64-linux/lib/libnvrtc.so.12",
                            "/opt/my cuda/targets/x86_64-linux/lib/libnvrtc.so.13"));
    EXPECT_THAT(places, Contains("/usr/local/cuda/lib/libnvrtc.so.12"));
    EXPECT_EQ(places.size(), 14u) << "nothing of a folder that is not absolute";
    EXPECT_EQ(compiler_candidates(14000).front(), "libnvrtc.so.14") << "the driver's own first";
  }
  const Variable named("CTXBROKER_NVRTC", "/opt/libnvrtc.so");
  EXPECT_THAT(compiler_candidates(13000), ElementsAre("/opt/libnvrtc.so"));
}

// ---- JIT options and logs ---------------------------------------------------------------------

std::vector<int> names_of(JitCall& call) {
  return {call.names(), call.names() + call.count()};
}

TEST(JitCallTest, JitOptionsArePassedOnOnlyIfAskedFor) {
  constexpr unsigned int logs_and_time = 5;
  JitCall plain(JitOptions{}, 13000);
  EXPECT_EQ(plain.count(), logs_and_time);
  EXPECT_EQ(plain.wall_time(), 0.0F);
  EXPECT_EQ(plain.error(), "");
  JitOptions options;
  options.max_registers = 32;
  options.optimisation = 1;  // level 0
  options.target = 90;
  options.verbose = options.line_info = true;
  JitCall call(options, 13000);
  const auto value = [&](CUjit_option name) {
    for (unsigned int i = 0; i < call.count(); ++i) {
      if (call.names()[i] == name) return reinterpret_cast<std::uintptr_t>(call.values()[i]);
    }
    return ~std::uintptr_t{0};
  };
  EXPECT_EQ(value(CU_JIT_MAX_REGISTERS), 32u);
  EXPECT_EQ(value(CU_JIT_OPTIMIZATION_LEVEL), 0u);
  EXPECT_EQ(value(CU_JIT_TARGET), 90u);
  EXPECT_EQ(value(CU_JIT_LOG_VERBOSE), 1u);
  EXPECT_EQ(value(CU_JIT_GENERATE_LINE_INFO), 1u);
  EXPECT_EQ(value(CU_JIT_GENERATE_DEBUG_INFO), ~std::uintptr_t{0});
  EXPECT_EQ(value(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES), 16384u);
}

TEST(JitCallTest, DebuggingTurnsTheOptimiserOff) {
  JitOptions options;
  options.debug_info = true;
  JitCall call(options, 13000);
  EXPECT_THAT(names_of(call), ::testing::Contains(CU_JIT_OPTIMIZATION_LEVEL));
}

TEST(JitCallTest, LoaderThreadsGoToDriversThatKnowThem) {
  JitOptions options;
  options.loader_threads = 4;
  JitCall old(options, 13000), young(options, 13010);
  EXPECT_THAT(old.left_out(), HasSubstr("13.1"));
  EXPECT_THAT(names_of(old), ::testing::Not(::testing::Contains(35)));
  EXPECT_EQ(young.left_out(), "");
  EXPECT_THAT(names_of(young), ::testing::Contains(35));
}

TEST(JitLogTest, LinesGetTheirKernelAndSource) {
  constexpr std::string_view ptx =
      ".version 7.0\n.target sm_75\n"
      "// .entry comment(\n"
      ".func (.param .b32 x) helper(\n)\n{\n add;\n}\n"  // line 7 is the body
      ".visible .entry blur(\n)\n{\n .loc 1 33 5\n mul;\n}\n"
      ".file 1 \"/home/me/blur.cu\"\n";
  const auto explained = [&](int line) {
    return explain_log("ptxas application ptx input, line " + std::to_string(line) +
                           "; error   : Unknown symbol 'q'\nptxas fatal   : aborted",
                       ptx, "module \"m\"");
  };
  EXPECT_EQ(explained(13),
            "module \"m\", PTX line 13, in kernel \"blur\" (/home/me/blur.cu, line 33): error   : "
            "Unknown symbol 'q'\nptxas fatal   : aborted");
  EXPECT_THAT(explained(7), HasSubstr("PTX line 7, in function \"helper\": error"));
  EXPECT_THAT(explained(2), HasSubstr("PTX line 2: error"));
  EXPECT_EQ(explain_log("anything else", ptx, "m"), "anything else");
  EXPECT_EQ(explain_log("", ptx, "m"), "");
}

// ---- The gate ---------------------------------------------------------------------------------

TEST(UseGateTest, GateClosesOnlyWhenNobodyIsInside) {
  UseGate gate;
  {
    const UseScope first(gate), second(gate);
    EXPECT_FALSE(gate.try_close());
  }
  EXPECT_TRUE(gate.try_close());
  EXPECT_FALSE(gate.try_close()) << "one at a time";
  gate.open();
  const UseScope again(gate);
  EXPECT_FALSE(gate.try_close());
}

TEST(UseGateTest, UsersAndCloserAreNeverInsideTogether) {
  UseGate gate;
  int plain = 0;  // written by the closer alone, read by users: a sanitizer watches
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> users;
  for (int i = 0; i < 3; ++i) {
    users.emplace_back([&] {
      while (!stop) {
        const UseScope use(gate);
        if (plain % 2 != 0) ++wrong;
      }
    });
  }
  int closed = 0;
  for (int i = 0; i < 20000 && closed < 200; ++i) {
    if (!gate.try_close()) {
      std::this_thread::yield();
      continue;
    }
    ++plain;
    ++plain;
    ++closed;
    gate.open();
  }
  stop = true;
  for (auto& user : users) user.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(plain, 2 * closed);
}

TEST(KernelNamesTest, KernelNamesOfTheDeviceAreSortedByDistance) {
  StoredImage image;
  image.about.emplace();
  const auto add = [&](int capability, std::vector<std::string> kernels) {
    ImageEntry entry;
    entry.kind = CodeKind::ptx;
    entry.compute_capability = capability;
    entry.kernels = std::move(kernels);
    image.about->entries.push_back(std::move(entry));
  };
  add(75, {"rows", "columns", "blur"});
  add(80, {"rows", "_Z4colsv"});
  add(100, {"cols"});  // the device is older
  EXPECT_THAT(kernels_like("cols", image, 90), ElementsAre("_Z4colsv", "rows", "columns", "blur"));
  EXPECT_EQ(no_such_kernel("filter", "cols", image, 90),
            "module \"filter\" has no kernel \"cols\"; it has \"_Z4colsv\", \"rows\", \"columns\", "
            "\"blur\"; was it declared extern \"C\"?");
  add(75, {"a", "b", "c", "d", "e", "f"});
  EXPECT_THAT(no_such_kernel("filter", "cols", image, 90), HasSubstr(" and 2 more;"));
  image.about.reset();
  EXPECT_EQ(no_such_kernel("filter", "cols", image, 90),
            "module \"filter\" has no kernel \"cols\"; was it declared extern \"C\"?")
      << "of an image that the reader does not know";
}

}  // namespace
}  // namespace ctxbroker::detail
