// SPDX-License-Identifier: Apache-2.0
// The module service: images of every kind, what is said of bad ones, and the life of modules.
#include <cuda.h>
#include <elf.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "behaviours/affine_text.hpp"
#include "module_fixture.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker {
namespace {

using behaviours::affine_text;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- Kinds of images -------------------------------------------------------------------------

TEST_F(ModuleTest, PartsAreLinkedWithCallsAcross) {
  PluginInstance instance = active("linked");
  EXPECT_EQ(first_of(run({&instance})), 20.0F) << "the second part doubles by the third";
}

TEST_F(ModuleTest, FilesOfNvccAreLinkedAndTheirVariablesHaveTypes) {
  PluginInstance instance = broker.create(broker.load(test_plugin("linking")), "linking");
  instance.activate(test_sizes);
  const std::vector<float> output = run({&instance});
  EXPECT_EQ(output[0], 6.0F) << "5 until its variable was set";
  EXPECT_EQ(output[3], 12.0F);
}

TEST_F(ModuleTest, OutputOfTheDriversLinkerIsLoadedAsAnImage) {
  write(linked_image(affine_text(7)));
  PluginInstance instance = active("from_file");
  EXPECT_EQ(first_of(run({&instance})), 7.0F);
  EXPECT_EQ(broker.unload_idle_modules(0), 1u) << "what is in machine code is known, too";
  EXPECT_EQ(first_of(run({&instance})), 7.0F);
}

TEST_F(ModuleTest, AnUndefinedFunctionIsNamedWithItsPart) {
  PluginInstance instance = create("undefined");
  const std::string text =
      error_text(ErrorKind::kernel_image, [&] { instance.activate(test_sizes); });
  EXPECT_THAT(text, AllOf(HasSubstr("module \"linked\""), HasSubstr("once"), HasSubstr("second.cu"),
                          HasSubstr("JIT log: ")));
}

TEST_F(ModuleTest, ABadPartIsNamed) {
  PluginInstance instance = create("bad_part");
  EXPECT_THAT(error_text(ErrorKind::kernel_image, [&] { instance.activate(test_sizes); }),
              HasSubstr("part \"wrong.cu\" of module \"linked\""));
}

TEST_F(ModuleTest, CudaSourceIsCompiledAtActivation) {
  PluginInstance instance = create("compiled");
  try {
    instance.activate(test_sizes);
  } catch (const Error& error) {
    ASSERT_THAT(error.what(), HasSubstr("run-time compiler is not on this machine"));
    GTEST_SKIP() << error.what();
  }
  EXPECT_EQ(first_of(run({&instance})), 30.0F);
  PluginInstance wrong = create("compile_error");
  EXPECT_THAT(error_text(ErrorKind::kernel_image, [&] { wrong.activate(test_sizes); }),
              AllOf(HasSubstr("module \"compiled\" cannot be compiled from \"affine.cu\""),
                    HasSubstr("affine.cu(5)"), HasSubstr("\"ADDED\" is undefined")));
}

// Names a compiler that is not there.
class MissingCompiler {
 public:
  MissingCompiler() {
    if (const char* const was = std::getenv(name)) before_ = was;
    setenv(name, "/nowhere/libnvrtc.so", 1);
  }
  ~MissingCompiler() { before_ ? setenv(name, before_->c_str(), 1) : unsetenv(name); }
  MissingCompiler(const MissingCompiler&) = delete;
  MissingCompiler& operator=(const MissingCompiler&) = delete;

 private:
  static constexpr const char* name = "CTXBROKER_NVRTC";
  std::optional<std::string> before_;
};

// The compiler is named before the broker is opened.
class MissingCompilerTest : private MissingCompiler, public ModuleTest {};

TEST_F(MissingCompilerTest, CompilerIsNamedInTheError) {
  PluginInstance instance = create("compiled");
  const std::string text =
      error_text(ErrorKind::kernel_image, [&] { instance.activate(test_sizes); });
  EXPECT_THAT(text, AllOf(HasSubstr("module \"compiled\""), HasSubstr("/nowhere/libnvrtc.so"),
                          HasSubstr("install NVRTC")));
}

// The test above is the control.
TEST_F(ModuleTest, CompilerThatAPluginNamesIsNotLookedFor) {
  const MissingCompiler named;
  PluginInstance instance = create("compiled");
  try {
    instance.activate(test_sizes);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("install NVRTC"), Not(HasSubstr("/nowhere"))));
  }
}

TEST_F(ModuleTest, ImageIsLoadedFromAFile) {
  write(affine_text(5));
  PluginInstance instance = active("from_file");
  EXPECT_EQ(first_of(run({&instance})), 5.0F);
}

// ---- What is said of bad images ---------------------------------------------------------------

TEST_F(ModuleTest, AMissingFileIsNamed) {
  PluginInstance instance = create("from_file");
  EXPECT_THAT(
      error_text(ErrorKind::kernel_image, [&] { instance.activate(test_sizes); }),
      AllOf(HasSubstr("module \"file\""), HasSubstr(file().string()), HasSubstr("is not there")));
}

// None of them is waited for, or read without an end.
TEST_F(ModuleTest, FileThatIsNotARegularOneOrTooLargeIsRefused) {
  struct Case {
    const char* says;
    std::function<void()> make;
  };
  const Case cases[] = {
      {"is a folder, not a file", [] { std::filesystem::create_directory(file()); }},
      {"is not a regular file", [] { ASSERT_EQ(mkfifo(file().c_str(), 0600), 0); }},
      {"is not a regular file", [] { std::filesystem::create_symlink("/dev/zero", file()); }},
      {"has more than 536870912 bytes in a module's file, the limit module_file: divide the module",
       [] {
         write("x");
         std::filesystem::resize_file(file(), (std::uintmax_t{1} << 29) + 1);
       }},
      {"is empty", [] { write(""); }}};
  for (const Case& one : cases) {
    std::filesystem::remove(file());
    one.make();
    PluginInstance instance = create("from_file");
    EXPECT_THAT(error_text(ErrorKind::kernel_image, [&] { instance.activate(test_sizes); }),
                AllOf(HasSubstr("module \"file\" cannot be loaded"), HasSubstr(file().string()),
                      HasSubstr(one.says)));
    EXPECT_FALSE(instance.active());
  }
}

TEST_F(ModuleTest, TheJitLogTellsLineAndKernel) {
  PluginInstance instance = create("wrong_line");
  EXPECT_THAT(error_text(ErrorKind::kernel_image, [&] { instance.activate(test_sizes); }),
              AllOf(HasSubstr("the driver's compiler refuses its PTX"),
                    HasSubstr("module \"wrong\", PTX line 14, in kernel \"affine\":"),
                    HasSubstr("nowhere")));
}

TEST_F(ModuleTest, PtxTooNewForTheDriverIsRefused) {
  std::string text = affine_text(0);
  text.replace(text.find(".version 7.0"), 12, ".version 99.0");
  EXPECT_THAT(refusal(text), AllOf(HasSubstr("its PTX (version 99.0) is too new for the driver"),
                                   HasSubstr("is of CUDA 1"), HasSubstr("update the driver")));
}

TEST_F(ModuleTest, PtxForNewerDevicesIsRefused) {
  std::string text = affine_text(0);
  text.replace(text.find(".version 7.0\n.target sm_75"), 26, ".version 8.8\n.target sm_121");
  const DeviceInfo& device = broker.devices()[0];
  EXPECT_THAT(refusal(text),
              AllOf(HasSubstr("no kernel image for device 0 (" + device.name +
                              ", compute capability " + std::to_string(device.compute_major) + "." +
                              std::to_string(device.compute_minor) + ")"),
                    HasSubstr("sm_121"), HasSubstr("build it with -gencode")));
}

// A cubin as far as its header.
std::string cubin_header(unsigned int capability) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_ident[EI_OSABI] = 0x33;
  header.e_ident[EI_ABIVERSION] = 7;
  header.e_type = ET_EXEC;
  header.e_machine = 190;
  header.e_version = EV_CURRENT;
  header.e_flags = capability | capability << 16;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_phentsize = sizeof(Elf64_Phdr);
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

// The same cubin, as if it were for sm_35. Since ABI 8 the architecture stands one byte higher.
std::string for_sm_35(std::string cubin) {
  Elf64_Ehdr header{};
  std::memcpy(&header, cubin.data(), sizeof header);
  const unsigned int at = header.e_ident[EI_ABIVERSION] >= 8 ? 8 : 0;
  header.e_flags = (header.e_flags & ~(0xFFu << at)) | 35u << at;
  std::memcpy(cubin.data(), &header, sizeof header);
  return cubin;
}

TEST_F(ModuleTest, MachineCodeForOtherDevicesIsRefused) {
  const std::string cubin =
      is_software() ? cubin_header(35) : for_sm_35(linked_image(affine_text(0)));
  EXPECT_THAT(refusal(cubin), AllOf(HasSubstr("no kernel image for device 0"),
                                    HasSubstr("machine code for sm_35")));
}

// The advice of the broker, and that of the software device's own log.
TEST_F(ModuleTest, MachineCodeAloneIsRefusedOnTheSoftwareDevice) {
  if (!is_software()) GTEST_SKIP() << "a GPU runs machine code";
  const std::string advice = "-gencode arch=compute_75,code=compute_75";
  const std::string said = refusal(cubin_header(75));
  EXPECT_THAT(said, AllOf(HasSubstr("build it with " + advice), HasSubstr("machine code for sm_75"),
                          HasSubstr("the software device runs PTX"),
                          HasSubstr("a fatbin that holds PTX (" + advice)));
}

TEST_F(ModuleTest, TruncatedContainersNeverReachTheDriver) {
  EXPECT_THAT(refusal(cubin_header(75).substr(0, 40)), HasSubstr("truncated"));
  const unsigned char header[] = {0x50, 0xED, 0x55, 0xBA, 1, 0, 16, 0, 0, 16, 0, 0, 0, 0, 0, 0, 1};
  EXPECT_THAT(refusal({reinterpret_cast<const char*>(header), sizeof header}),
              AllOf(HasSubstr("truncated"), HasSubstr("17 bytes long")));
}

TEST_F(ModuleTest, GarbageIsSaidToBeNoImage) {
  EXPECT_THAT(refusal("xyzzy, no image at all"), HasSubstr("neither PTX nor a cubin nor a fatbin"));
}

// ---- Options and logs -------------------------------------------------------------------------

TEST_F(ModuleTest, AVerboseLogReachesTheHostWithTimes) {
  PluginInstance instance = active("verbose");
  EXPECT_EQ(first_of(run({&instance})), 1.0F);
  EXPECT_THAT(said("module"), Contains(AllOf(HasSubstr("module \"plain\" loaded in "),
                                             HasSubstr("registers"), HasSubstr("affine"))));
  if (broker.driver().version < 13010) {
    EXPECT_THAT(said("module"), Contains(HasSubstr("without loader_threads")));
  }
  EXPECT_GT(lease_of().module_load_seconds, 0);
}

// ---- Life -------------------------------------------------------------------------------------

TEST_F(ModuleTest, ModuleWithoutVariablesIsLoadedOncePerLease) {
  PluginInstance first = active("plain"), second = active("plain");
  EXPECT_EQ(lease_of().modules, 1u);
  EXPECT_EQ(lease_of().module_loads, 1u);
  EXPECT_GT(lease_of().module_bytes, 0u);
  // The control: one with a variable is each instance's own.
  PluginInstance third = active("affine"), fourth = active("affine");
  EXPECT_EQ(lease_of().modules, 3u);
  first.deactivate();
  EXPECT_EQ(first_of(run({&second})), 1.0F);
  for (PluginInstance* one : {&second, &third, &fourth}) one->deactivate();
  EXPECT_EQ(lease_of().modules, 3u) << "a poll unloads those that cannot be shared";
  EXPECT_TRUE(poll_until_modules_are(1)) << "the next activation can use the other one";
  EXPECT_EQ(lease_of().module_unloads, 2u);
  first.activate(test_sizes);
  EXPECT_EQ(first_of(run({&first})), 1.0F);
  first.deactivate();
  EXPECT_EQ(lease_of().module_loads, 3u);
  EXPECT_EQ(broker.unload_idle_modules(0), 1u);
  EXPECT_EQ(lease_of().modules, 0u);
  EXPECT_EQ(lease_of().module_bytes, 0u);
}

TEST_F(ModuleTest, ModulesOfDestroyedInstancesAreUnloadedByAPoll) {
  const PluginInstance keeps_the_lease = create("bias");
  { const PluginInstance shared = active("plain"), alone = active("affine"); }
  EXPECT_EQ(lease_of().modules, 2u);
  EXPECT_TRUE(poll_until_modules_are(0));
  EXPECT_EQ(lease_of().module_bytes, 0u);
}

TEST_F(ModuleTest, ARealTimeSessionUnloadsNoModule) {
  PluginInstance instance = create("affine"), idle = active("plain");
  Tenant host = broker.host();
  const auto run_out_of_memory = [&] {
    error_text(ErrorKind::out_of_memory, [&] { return host.allocate(std::uint64_t{1} << 46); });
  };
  broker.begin_realtime();
  instance.activate(test_sizes);
  instance.deactivate();
  broker.poll();
  run_out_of_memory();
  EXPECT_EQ(lease_of().modules, 2u);
  broker.end_realtime();
  EXPECT_EQ(lease_of().modules, 2u);
  run_out_of_memory();
  EXPECT_EQ(lease_of().modules, 0u) << "a control: afterwards they go";
}

TEST_F(ModuleTest, ActivationInARealTimeSessionLoadsEveryModule) {
  broker.begin_realtime();
  PluginInstance instance = active("first_use");
  EXPECT_EQ(lease_of().modules, 1u) << "LazyModuleIsLoadedAtTheFirstLaunch is the control";
  EXPECT_EQ(first_of(run({&instance})), 1.0F);
  EXPECT_EQ(lease_of().module_loads, 1u);
  broker.end_realtime();
}

TEST_F(ModuleTest, KernelsAreLoadedBeforeTheirFirstLaunch) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "no real driver counts its calls";
  const auto loads = [&] {
    return controls.call_count("cuFuncLoad") + controls.call_count("cuModuleLoadDataEx");
  };
  controls.start_counting();
  PluginInstance instance = active("plain");
  Graph graph(broker, {&instance}, test_sizes);
  EXPECT_EQ(controls.call_count("cuFuncLoad"), 1u) << "of the kernel that it has looked up";
  controls.start_counting();
  float samples[4] = {};
  graph.process(samples, samples, {});
  EXPECT_EQ(loads(), 0u);
  EXPECT_EQ(broker.unload_idle_modules(0), 1u);
  graph.process(samples, samples, {});
  EXPECT_EQ(loads(), 2u) << "a control";
  controls.stop_counting();
}

TEST_F(ModuleTest, EqualKernelNamesOfTwoPluginsAreSeparate) {
  // One context, the primary, with two tenants' kernels `affine` and variables `bias` in it.
  PluginInstance biased = active("bias", LeaseKind::shared);
  PluginInstance other = broker.create(broker.load(test_plugin("behaviours_twin")), "affine",
                                       {Placement(0), LeaseChoice(LeaseKind::shared)});
  other.activate(test_sizes);
  PluginInstance same = active("plain", LeaseKind::shared);
  EXPECT_EQ(first_of(run({&biased})), 100.0F);
  EXPECT_EQ(first_of(run({&other})), 0.0F);
  EXPECT_EQ(first_of(run({&same})), 1.0F);
}

TEST_F(ModuleTest, LazyModuleIsLoadedAtTheFirstLaunch) {
  PluginInstance instance = active("first_use");
  EXPECT_EQ(lease_of().modules, 0u) << "nothing was launched";
  EXPECT_EQ(first_of(run({&instance})), 1.0F);
  EXPECT_EQ(lease_of().modules, 1u);
  PluginInstance eager = active("plain");
  EXPECT_EQ(lease_of().module_loads, 1u) << "the same image";
}

// All at once, for the first time and again after it was unloaded. ThreadSanitizer watches, too.
TEST_F(ModuleTest, LazyModuleIsLoadedOnceForAllThreads) {
  std::vector<PluginInstance> instances;
  for (int i = 0; i < 4; ++i) instances.push_back(active("first_use"));
  std::vector<std::unique_ptr<Graph>> graphs;
  for (PluginInstance& instance : instances) {
    graphs.push_back(std::make_unique<Graph>(broker, std::vector{&instance}, test_sizes));
  }
  for (std::uint64_t round = 1; round <= 3; ++round) {
    std::vector<std::thread> threads;
    std::vector<float> firsts(graphs.size());
    for (std::size_t i = 0; i < graphs.size(); ++i) {
      threads.emplace_back([&, i] {
        float samples[4] = {};
        graphs[i]->process(samples, samples, {});
        firsts[i] = samples[0];
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(firsts, ::testing::Each(1.0F));
    EXPECT_EQ(lease_of().module_loads, round);
    EXPECT_EQ(broker.unload_idle_modules(0), 1u);
  }
}

TEST_F(ModuleTest, RealTimeActivationLoadsEveryModule) {
  PluginInstance instance = create("first_use");
  ActivationSizes sizes = test_sizes;
  sizes.realtime = true;
  instance.activate(sizes);
  EXPECT_EQ(lease_of().modules, 1u);
  EXPECT_EQ(broker.unload_idle_modules(0), 0u) << "and keeps it";
  EXPECT_EQ(lease_of().modules, 1u);
}

TEST_F(ModuleTest, IdleModulesGoAndComeBack) {
  PluginInstance instance = active("plain"), biased = active("bias");
  EXPECT_EQ(first_of(run({&instance})), 1.0F);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    EXPECT_EQ(broker.unload_idle_modules(0), 1u) << "what has a variable stays";
    EXPECT_EQ(lease_of().modules, 1u);
    EXPECT_EQ(first_of(run({&instance})), 1.0F);
    EXPECT_EQ(first_of(run({&biased})), 100.0F);
    EXPECT_EQ(lease_of().module_reloads, round);
    EXPECT_EQ(lease_of().module_unloads, round);
  }
  EXPECT_THAT(said("module"), Contains(HasSubstr("1 idle module(s)")));
  EXPECT_THAT(said("module"), Contains(HasSubstr("module \"plain\" loaded again in ")));
  error_text(ErrorKind::no_device, [&] { broker.unload_idle_modules(99); });
}

TEST_F(ModuleTest, GraphsOfJobsSurviveTheirModules) {
  InstanceOptions options;
  options.job_graphs = true;
  for (const char* const plugin : {"plain", "first_use"}) {
    PluginInstance instance = broker.create(behaviours(), plugin, options);
    instance.activate(test_sizes);
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(first_of(run({&instance})), 1.0F);
      EXPECT_EQ(broker.unload_idle_modules(0), 1u);
      EXPECT_EQ(lease_of().graphs, 0u) << "its kernels are gone";
    }
  }
  EXPECT_THAT(said("graph"), testing::IsEmpty());
}

TEST_F(ModuleTest, FullDeviceUnloadsIdleModules) {
  PluginInstance instance = active("plain");
  Tenant host = broker.host();
  error_text(ErrorKind::out_of_memory, [&] { return host.allocate(std::uint64_t{1} << 46); });
  EXPECT_EQ(lease_of().modules, 0u);
  EXPECT_EQ(lease_of().module_unloads, 1u);
  EXPECT_EQ(first_of(run({&instance})), 1.0F);
}

TEST_F(ModuleTest, FailedAllocationIsTriedAgainAfterUnloadingModules) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "no real driver fails when it is told to";
  for (const auto& [memory, call] : {std::pair{MemorySource::driver, "cuMemAlloc_v2"},
                                     {MemorySource::pool, "cuMemAllocFromPoolAsync"}}) {
    SCOPED_TRACE(call);
    reopen_with(memory);
    PluginInstance instance = active("plain");
    Tenant host = broker.host();
    host.release(host.allocate(4096));
    ASSERT_EQ(controls.fail_call(call, 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
    static_cast<void>(host.allocate(4096));  // once more after modules went
    EXPECT_EQ(lease_of().module_unloads, 1u);
    ASSERT_EQ(controls.fail_call(call, 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
    // Nothing is left to unload, and no pool has unused memory.
    error_text(ErrorKind::out_of_memory, [&] { return host.allocate(4096); });
    controls.stop_counting();
  }
}

TEST_F(ModuleTest, ModulesAreLoadedAgainAfterALoss) {
  PluginInstance instance = active("plain");
  Graph graph(broker, {&instance}, test_sizes);
  EXPECT_EQ(lease_of().module_reloads, 0u);
  const TenantId tenant = [&] {
    for (const TenantMetrics& one : broker.metrics().tenants) {
      if (one.name == "behaviours") return one.id;
    }
    return host_tenant;
  }();
  ASSERT_TRUE(broker.force_loss(tenant, 0, "a test"));
  EXPECT_EQ(first_of(run({&instance})), 1.0F);
  EXPECT_EQ(lease_of().module_loads, 1u) << "of the new life";
  EXPECT_EQ(lease_of().module_reloads, 1u);
}

TEST_F(ModuleTest, UnloadingNeverDisturbsJobsThatRun) {
  PluginInstance instance = active("plain");
  std::atomic<bool> done{false};
  std::atomic<std::size_t> unloaded = 0;
  std::string failure;
  std::thread worker([&] {
    try {
      Graph graph(broker, {&instance}, test_sizes);
      std::vector<float> samples(4, 0.0F);
      // On a busy machine the other thread may not get in between for hundreds of jobs.
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      for (int job = 0; job < 300 || unloaded == 0; ++job) {
        if (std::chrono::steady_clock::now() > limit) break;
        std::vector<float> output(4, -1.0F);
        graph.process(samples.data(), output.data(), {});
        if (output[3] != 1.0F) failure = "job " + std::to_string(job) + " was wrong";
      }
    } catch (const Error& error) {
      failure = error.what();
    }
    done = true;
  });
  while (!done) unloaded += broker.unload_idle_modules(0);
  worker.join();
  EXPECT_EQ(failure, "");
  EXPECT_GT(unloaded, 0u);
  EXPECT_EQ(lease_of().module_unloads, unloaded);
}

}  // namespace
}  // namespace ctxbroker
