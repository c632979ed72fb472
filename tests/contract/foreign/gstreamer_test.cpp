// SPDX-License-Identifier: Apache-2.0
// GStreamer's nvcodec as a tenant's library. Its elements copy pictures to the device and back on
// GStreamer's own threads, which know of no guard, while a neighbour resets the device. GStreamer
// itself is opened by name, so that building this test needs nothing of it.
#include <gmock/gmock.h>

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "foreign_case.hpp"
#include "support/driver_by_name.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char gstreamer_file[] = "libgstreamer-1.0.so.0";
constexpr char cuda_file[] = "libgstcuda-1.0.so.0";
constexpr std::array plug_ins{"nvcodec", "coreelements", "videotestsrc"};

// The few functions of GStreamer that the test calls; all objects are opaque here.
template <typename Result, typename... Parameters>
Result gst(const char* name, Parameters... arguments) {
  static void* const library = dlopen(gstreamer_file, RTLD_NOW | RTLD_GLOBAL);
  void* found = library == nullptr ? nullptr : dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(std::string(name) + " is missing in GStreamer");
  return reinterpret_cast<Result (*)(Parameters...)>(found)(arguments...);
}

// The path of a library that the loader finds by its name; empty if it does not.
std::filesystem::path path_of(const char* soname) {
  void* library = dlopen(soname, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return {};
  std::array<char, 4096> folder{};
  const bool is_known = dlinfo(library, RTLD_DI_ORIGIN, folder.data()) == 0;
  dlclose(library);
  return is_known ? std::filesystem::path(folder.data()) / soname : std::filesystem::path();
}

std::filesystem::path plug_in_path(const std::string& name) {
  return path_of(gstreamer_file).parent_path() / "gstreamer-1.0" / ("libgst" + name + ".so");
}

// Empty if GStreamer has what the test needs.
std::string what_is_missing() {
  if (path_of(gstreamer_file).empty()) return gstreamer_file;
  for (const char* name : plug_ins)
    if (!std::filesystem::exists(plug_in_path(name))) return plug_in_path(name).string();
  return "";
}

void* make_pipeline(const std::string& file) {
  const std::string text =
      "videotestsrc num-buffers=200 pattern=gamut ! "
      "video/x-raw,format=RGBA,width=64,height=48,framerate=30/1 ! "
      "cudaupload ! cudadownload ! filesink location=" +
      file;
  return gst<void*>("gst_parse_launch", text.c_str(), static_cast<void**>(nullptr));
}

// Runs the pipeline to its end, and resets the device meanwhile.
template <typename Reset>
void run_pipeline(const std::string& file, const Reset& reset) {
  constexpr int playing = 4, stopped = 1, failure = 0;
  constexpr unsigned end_of_stream = 1, error = 2;
  constexpr std::uint64_t thirty_seconds = 30'000'000'000;
  void* pipeline = make_pipeline(file);
  if (pipeline == nullptr) throw std::runtime_error("GStreamer made no pipeline");
  if (gst<int>("gst_element_set_state", pipeline, playing) == failure)
    throw std::runtime_error("GStreamer's pipeline did not start");
  for (int resets = 0; resets < 10; ++resets) {
    reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  void* bus = gst<void*>("gst_element_get_bus", pipeline);
  void* last = gst<void*>("gst_bus_timed_pop_filtered", bus, thirty_seconds, end_of_stream | error);
  // Only an error comes with a structure.
  const bool is_end = last != nullptr && gst<void*>("gst_message_get_structure", last) == nullptr;
  std::printf("PIPELINE %s\n", is_end ? "ended" : last == nullptr ? "hung" : "failed");
  if (last != nullptr) gst<void>("gst_mini_object_unref", last);
  gst<int>("gst_element_set_state", pipeline, stopped);
  gst<void>("gst_object_unref", bus);
  gst<void>("gst_object_unref", pipeline);
}

void load_plug_ins() {
  gst<void>("gst_init", static_cast<int*>(nullptr), static_cast<char***>(nullptr));
  for (const char* name : plug_ins) {
    void* loaded = gst<void*>("gst_plugin_load_file", plug_in_path(name).c_str(),
                              static_cast<void**>(nullptr));
    if (loaded == nullptr) throw std::runtime_error(plug_in_path(name).string() + " did not load");
  }
}

void run_as_tenant(const std::string& lease, const std::string& file) {
  Broker broker = Broker::open(printing_broker());
  Tenant tenant = broker.open_tenant("org.gstreamer", {LeaseChoice(lease_kind(lease))});
  Tenant neighbour = broker.open_tenant("org.neighbour", {LeaseChoice(lease_kind(lease))});
  tenant.adopt(path_of(cuda_file));
  tenant.adopt(plug_in_path("nvcodec"));
  load_plug_ins();
  run_pipeline(file, [&] { neighbour.run(0, reset_device); });
  std::printf("STRIKES %d\n", static_cast<int>(tenant.strikes()));
  for (const TenantMetrics& one : broker.metrics().tenants)
    if (one.name == "org.gstreamer")
      std::printf("GUARDED %s\n", !one.guarded_calls.empty() ? "some" : "none");
  tenant.close();
  neighbour.close();
  broker.close();
}

TEST(GStreamer, DISABLED_Plays) {
  const std::string lease = foreign_lease();
  ASSERT_FALSE(lease.empty()) << "a part of another test, which runs it as a child";
  const char* file = std::getenv("CTXB_FOREIGN_FILE");  // NOLINT(concurrency-mt-unsafe)
  ASSERT_NE(file, nullptr);
  if (lease == foreign_alone) {
    load_plug_ins();
    run_pipeline(file, [] {});
  } else {
    run_as_tenant(lease, file);
  }
  std::printf("DONE\n");
}

class GStreamerTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const std::string missing = what_is_missing(); !missing.empty())
      GTEST_SKIP() << "needs GStreamer with nvcodec; " << missing << " is missing";
  }
  // The pictures that came back, one after the other.
  std::string pictures(const std::string& how, ChildResult& result) {
    const std::filesystem::path file = folder_ / "pictures";
    std::filesystem::remove(file);
    std::string search = test_library("no_decoder").replace_extension().string();
    if (const std::string driver = driver_search_path(how); !driver.empty()) search += ":" + driver;
    result = play_foreign("GStreamer.DISABLED_Plays", how,
                          {{"CTXB_FOREIGN_FILE", file.string()},
                           {"GST_REGISTRY", (folder_ / "registry").string()},
                           {"GST_REGISTRY_FORK", "no"},
                           {"GST_PLUGIN_SYSTEM_PATH_1_0", folder_.path().string()},
                           {"LD_LIBRARY_PATH", search}});
    return std::filesystem::exists(file) ? read_bytes(file) : "";
  }

 private:
  TempFolder folder_;
};

TEST_P(GStreamerTest, PicturesBesideResetsAreThoseOfARunAlone) {
  ChildResult alone, tenant;
  const std::string expected = pictures(foreign_alone, alone);
  ASSERT_THAT(alone.output, HasSubstr("PIPELINE ended")) << "the control";
  ASSERT_EQ(expected.size(), 200U * 64 * 48 * 4) << alone.output;

  const std::string pictures_of_tenant = pictures(GetParam(), tenant);
  EXPECT_EQ(tenant.exit_code, 0) << tenant.output;
  EXPECT_THAT(tenant.output, HasSubstr("PIPELINE ended"));
  EXPECT_THAT(tenant.output, HasSubstr("RESET 0"));
  EXPECT_THAT(tenant.output, HasSubstr("GUARDED some"));
  EXPECT_THAT(tenant.output, HasSubstr("STRIKES 0"));
  EXPECT_THAT(tenant.output, HasSubstr("DONE"));
  EXPECT_THAT(tenant.output, Not(HasSubstr("gave back what the tenant left")));
  EXPECT_TRUE(pictures_of_tenant == expected) << pictures_of_tenant.size() << " bytes came back";
}

INSTANTIATE_TEST_SUITE_P(Leases, GStreamerTest, ::testing::ValuesIn(foreign_leases),
                         [](const auto& one) { return std::string("lease_") + one.param; });

}  // namespace
}  // namespace ctxbroker
