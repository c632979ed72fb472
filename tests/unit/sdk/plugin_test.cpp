// SPDX-License-Identifier: Apache-2.0
// The C++ SDK against a host that only takes notes: what a plug-in's class becomes at the C border.
#include "ctxbroker/plugin.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "fake_host.hpp"

namespace {

using namespace ctxbroker::sdk;
using ctxbroker::test::FakeHost;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* colours[] = {"red", "green", "blue", nullptr};

constexpr Real amount{0, "amount", "Amount", "px", "How much.", {-1, 1}, 0.5};
constexpr Integer count = fixed(Integer{1, "count", "Count", "", "How many.", {0, 9}, 3});
constexpr Toggle on{2, "on", "On", "Whether.", true};
constexpr Choice colour{3, "colour", "Colour", "Which.", colours, 1};
constexpr auto parameters = parameter_table(amount, count, on, colour);
constexpr unsigned char image[] = {1, 2, 3};
constexpr ctxb_module modules[] = {module("m", image, sizeof image)};

// Controls what the next call of the probe does, and keeps what it saw. The class has no other way
// to receive that.
struct Script {
  std::string throws;  // "failure", "bad_alloc", "exception", "int", or empty
  double amount = 0;
  std::int64_t count = 0;
  bool on = false;
  std::uint32_t colour = 0;
  bool empty_when_lost = false;
  std::string loss_text;
  int destroyed = 0;
  int callbacks = 0;
};
Script script;

void obey() {
  const std::string what = script.throws;
  if (what == "failure") {
    throw Failure(CTXB_ERROR_DEADLINE, "told to fail", 719);
  }
  if (what == "bad_alloc") {
    throw std::bad_alloc();
  }
  if (what == "exception") {
    throw std::runtime_error("something else");
  }
  if (what == "int") {
    throw 42;
  }
}

struct Triple {
  float a, b, c;
};

class Probe final : public Plugin, public Latent, public ParameterText, public Callback {
 public:
  static constexpr Descriptor descriptor = Descriptor::image("org.test.probe", "Probe", "1.2.3")
                                               .vendor("test")
                                               .description("Takes notes.")
                                               .parameters(parameters)
                                               .modules(modules)
                                               .in_place()
                                               .lease(CTXB_LEASE_PRIVATE)
                                               .least_compute_capability(7, 5);

  explicit Probe(Host host_side) : Plugin(host_side) { obey(); }
  ~Probe() override { ++script.destroyed; }

  void activate(const Activation& activation) override {
    kernel_ = activation.kernel("probe");
    floats_ = activation.buffer<float>(10);
    triples_ = activation.buffer<Triple>(4);
    activation.clear(floats_);
    const float values[] = {1, 2, 3};
    activation.upload(floats_, values, 3, 2);
    obey();
  }

  Outcome process(const Job& job) override {
    obey();
    script.amount = job[amount];
    script.count = job[count];
    script.on = job[on];
    script.colour = job[colour];
    const ImageView in = job.input_image();
    job.launch(kernel_, {{2, 3, 4}, {5, 6, 7}, 80}, in, floats_, 1.5F, std::uint16_t{9},
               Triple{1, 2, 3});
    return script.on ? Outcome::done : Outcome::bypass;
  }

  void deactivate() override { obey(); }
  void context_lost(const Loss& loss) override {
    script.loss_text = loss.text();
    script.empty_when_lost = !floats_ && triples_.size() == 0;
  }

  std::uint64_t latency() const override { return 77; }
  std::uint64_t tail() const override { return CTXB_TAIL_INFINITE; }
  void on_main_thread() override { ++script.callbacks; }
  std::string to_text(std::uint32_t parameter, const ctxb_value& value) const override {
    obey();
    if (parameter != amount.index) return "";
    return value.numbers[0] == 1 ? std::string(1000, 'x')
                                 : "about " + std::to_string(std::lround(value.numbers[0]));
  }
  bool from_text(std::uint32_t, std::string_view text, ctxb_value& value) const override {
    obey();
    if (text != "half") return false;
    value.numbers[0] = 0.5;
    return true;
  }

 private:
  Kernel kernel_;
  DeviceBuffer<float> floats_;
  DeviceBuffer<Triple> triples_;
};

// The least there can be.
class Plain final : public Plugin {
 public:
  static constexpr Descriptor descriptor = Descriptor::audio("org.test.plain", "Plain", "1.0.0");
  using Plugin::Plugin;
  void activate(const Activation&) override {}
  Outcome process(const Job& job) override {
    static_cast<void>(job.input_audio());
    return Outcome::again;
  }
};

}  // namespace

CTXB_EXPORT_PLUGINS(Probe, Plain)

namespace {

const ctxb_plugin_factory& factory() {
  return *static_cast<const ctxb_plugin_factory*>(
      ctxb_plugin_entry.get_factory(CTXB_PLUGIN_FACTORY_ID));
}

ctxb_value number(double value) {
  return {sizeof(ctxb_value), CTXB_PARAMETER_FLOAT, {value, 0, 0, 0}, ""};
}

class SdkPlugin : public testing::Test {
 public:
  ~SdkPlugin() override {
    if (plugin != nullptr) {
      plugin->destroy(plugin);
    }
  }

 protected:
  SdkPlugin() {
    script = {};
    activation.size = sizeof(activation);
    activation.max_width = 4;
    activation.max_height = 4;
    activation.parameters = values;
    activation.parameter_count = 4;
    buffer.size = sizeof(buffer);
    buffer.media = CTXB_MEDIA_IMAGE;
    buffer.data = 0x100;
    buffer.row_pitch = 64;
    buffer.width = 4;
    buffer.height = 2;
    buffer.channels = 4;
    buffer.samples = CTXB_SAMPLE_FLOAT;
    job.size = sizeof(job);
    job.parameters = values;
    job.parameter_count = 4;
    job.inputs = job.outputs = &buffer;
    job.input_count = job.output_count = 1;
    job.stream = &job;
  }
  void create(std::uint32_t index = 0) { plugin = factory().create(index, host.raw()); }
  void create_active() {
    create();
    ASSERT_NE(plugin, nullptr);
    ASSERT_EQ(plugin->activate(plugin, &activation), CTXB_OK) << host.failed_text;
  }

  FakeHost host;
  const ctxb_plugin* plugin = nullptr;
  ctxb_value values[4] = {number(-0.25), number(7), number(0), number(2)};
  ctxb_activation activation{};
  ctxb_buffer buffer{};
  ctxb_job job{};
};

TEST_F(SdkPlugin, EntryAndFactoryListThePlugins) {
  EXPECT_EQ(ctxb_plugin_entry.size, sizeof(ctxb_plugin_entry_type));
  EXPECT_EQ(ctxb_plugin_entry.abi_major, CTXB_ABI_MAJOR);
  EXPECT_EQ(ctxb_plugin_entry.init("anywhere"), CTXB_OK);
  ctxb_plugin_entry.deinit();
  EXPECT_EQ(ctxb_plugin_entry.get_factory("another/1"), nullptr);
  EXPECT_EQ(factory().count(), 2U);
  EXPECT_EQ(factory().describe(2), nullptr);
  EXPECT_STREQ(factory().describe(1)->id, "org.test.plain");
  EXPECT_EQ(factory().describe(1)->media, std::uint32_t{CTXB_MEDIA_AUDIO});
}

TEST_F(SdkPlugin, DescriptorHasThePluginsPortsAndParameters) {
  const ctxb_plugin_descriptor& d = *factory().describe(0);
  EXPECT_EQ(d.size, sizeof(d));
  EXPECT_EQ(d.media, std::uint32_t{CTXB_MEDIA_IMAGE});
  EXPECT_STREQ(d.version, "1.2.3");
  EXPECT_EQ(d.flags, 0U);
  ASSERT_EQ(d.input_count, 1U);
  ASSERT_EQ(d.output_count, 1U);
  EXPECT_STREQ(d.inputs[0].id, "in");
  EXPECT_EQ(d.inputs[0].channels, CTXB_CHANNELS(4));
  EXPECT_EQ(d.outputs[0].in_place, 1U);
  EXPECT_EQ(d.cuda_use, std::uint32_t{CTXB_CUDA_KERNELS});
  EXPECT_EQ(d.lease, std::uint32_t{CTXB_LEASE_PRIVATE});
  EXPECT_EQ(d.min_compute_major, 7U);
  EXPECT_EQ(d.min_compute_minor, 5U);
  ASSERT_EQ(d.module_count, 1U);
  EXPECT_EQ(d.modules[0].data_size, 3U);
  ASSERT_EQ(d.parameter_count, 4U);
  EXPECT_EQ(d.parameters[0].size, sizeof(ctxb_parameter));
  EXPECT_EQ(d.parameters[0].minimum, -1);
  EXPECT_EQ(d.parameters[0].flags, CTXB_PARAMETER_AUTOMATABLE);
  EXPECT_EQ(d.parameters[1].type, std::uint32_t{CTXB_PARAMETER_INTEGER});
  EXPECT_EQ(d.parameters[1].flags, 0U);
  EXPECT_EQ(d.parameters[2].default_numbers[0], 1);
  EXPECT_EQ(d.parameters[3].maximum, 2);
  EXPECT_STREQ(d.parameters[3].choices[2], "blue");
}

TEST_F(SdkPlugin, ParametersBecomeTextAndBack) {
  create();
  const auto* words = static_cast<const ctxb_parameter_text_extension*>(
      plugin->get_extension(plugin, CTXB_EXT_PARAMETER_TEXT));
  ASSERT_NE(words, nullptr);
  char text[256] = "untouched";
  ctxb_value value = number(0.25);
  EXPECT_EQ(words->to_text(plugin, amount.index, &value, text, sizeof text), CTXB_OK);
  EXPECT_STREQ(text, "about 0");
  EXPECT_EQ(words->to_text(plugin, amount.index, &value, text, 7), CTXB_ERROR_UNSUPPORTED)
      << "no room for the 0";
  value = number(1);
  EXPECT_EQ(words->to_text(plugin, amount.index, &value, text, sizeof text),
            CTXB_ERROR_UNSUPPORTED);
  EXPECT_EQ(words->to_text(plugin, count.index, &value, text, sizeof text), CTXB_ERROR_UNSUPPORTED);
  EXPECT_STREQ(text, "about 0") << "not written to";
  EXPECT_EQ(words->from_text(plugin, amount.index, "half", &value), CTXB_OK);
  EXPECT_EQ(value.numbers[0], 0.5);
  EXPECT_EQ(words->from_text(plugin, amount.index, "1", &value), CTXB_ERROR_UNSUPPORTED);
  script.throws = "failure";
  EXPECT_EQ(words->from_text(plugin, amount.index, "half", &value), CTXB_ERROR_DEADLINE);
  EXPECT_EQ(host.failed_text, "told to fail");
}

TEST_F(SdkPlugin, ProcessLaunchesWithTheArgumentsBytes) {
  create_active();
  const std::uint64_t floats = host.live.begin()->first;
  EXPECT_EQ(plugin->process(plugin, &job), CTXB_BYPASS) << host.failed_text;
  EXPECT_EQ(script.amount, -0.25);
  EXPECT_EQ(script.count, 7);
  EXPECT_FALSE(script.on);
  EXPECT_EQ(script.colour, 2U);
  ASSERT_EQ(host.launches.size(), 1U);
  const auto& launch = host.launches[0];
  EXPECT_EQ(launch.kernel, "probe");
  EXPECT_EQ(launch.stream, &job);
  EXPECT_THAT(launch.grid, ElementsAre(2, 3, 4));
  EXPECT_THAT(launch.block, ElementsAre(5, 6, 7));
  EXPECT_EQ(launch.shared_bytes, 80U);
  EXPECT_THAT(launch.sizes, ElementsAre(sizeof(ImageView), 8, 4, 2, 12));
  std::uint64_t passed = 0;
  std::memcpy(&passed, launch.arguments[1].data(), 8);
  EXPECT_EQ(passed, floats);
  ImageView view{};
  std::memcpy(&view, launch.arguments[0].data(), sizeof(view));
  EXPECT_EQ(view.data, reinterpret_cast<float*>(0x100));
  EXPECT_EQ(view.pitch, 64U);
  EXPECT_EQ(view.width, 4U);
  EXPECT_EQ(view.height, 2U);
}

TEST_F(SdkPlugin, ActivateUploadsAndClears) {
  create_active();
  ASSERT_EQ(host.live.size(), 2U);
  const auto [address, bytes] = *host.live.begin();
  EXPECT_EQ(bytes, 40U);
  EXPECT_EQ(host.live.rbegin()->second, 48U);
  EXPECT_THAT(host.clears, ElementsAre(std::pair(address, bytes)));
  EXPECT_EQ(host.uploads.at(address + 8).size(), 12U);
}

TEST_F(SdkPlugin, DeactivateGivesBackWhatTheAuthorForgot) {
  create_active();
  const std::uint64_t first = host.live.begin()->first;
  const std::uint64_t second = host.live.rbegin()->first;
  plugin->deactivate(plugin);
  EXPECT_TRUE(host.live.empty());
  EXPECT_THAT(host.released, ElementsAre(second, first));
  EXPECT_EQ(plugin->process(plugin, &job), CTXB_BYPASS);  // an empty buffer is a null pointer
  EXPECT_EQ(host.launches.back().arguments[1], std::vector<unsigned char>(8));
}

TEST_F(SdkPlugin, DeactivateThatThrowsStillGivesBack) {
  create_active();
  script.throws = "exception";
  plugin->deactivate(plugin);
  EXPECT_TRUE(host.live.empty());
  EXPECT_THAT(host.logs, ElementsAre("something else"));
}

TEST_F(SdkPlugin, ActivateThatThrowsGivesBackAndCanBeRepeated) {
  create();
  script.throws = "failure";
  EXPECT_EQ(plugin->activate(plugin, &activation), CTXB_ERROR_DEADLINE);
  EXPECT_TRUE(host.live.empty());
  EXPECT_EQ(host.released.size(), 2U);
  script.throws.clear();
  EXPECT_EQ(plugin->activate(plugin, &activation), CTXB_OK);
  EXPECT_EQ(plugin->activate(plugin, &activation), CTXB_OK);  // replaced buffers go back at once
  EXPECT_EQ(host.live.size(), 2U);
  plugin->deactivate(plugin);
  EXPECT_TRUE(host.live.empty());
}

TEST_F(SdkPlugin, ContextLostEmptiesTheBuffersWithoutACall) {
  create_active();
  const ctxb_loss loss{sizeof(ctxb_loss), CTXB_LOSS_FAULT, CTXB_GUILT_INNOCENT, 700, "a test"};
  plugin->context_lost(plugin, &loss);
  EXPECT_TRUE(script.empty_when_lost);
  EXPECT_EQ(script.loss_text, "a test");
  plugin->deactivate(plugin);
  EXPECT_TRUE(host.released.empty());
}

TEST_F(SdkPlugin, NoExceptionCrossesTheBorder) {
  const struct {
    const char* throws;
    ctxb_status status;
    std::int32_t driver_status;
    const char* text;
  } cases[] = {
      {"failure", CTXB_ERROR_DEADLINE, 719, "told to fail"},
      {"bad_alloc", CTXB_ERROR_OUT_OF_HOST_MEMORY, 0, "memory"},
      {"exception", CTXB_ERROR, 0, "something else"},
      {"int", CTXB_ERROR, 0, "not a std::exception"},
  };
  create_active();
  for (const auto& one : cases) {
    script.throws = one.throws;
    EXPECT_EQ(plugin->process(plugin, &job), one.status);
    EXPECT_EQ(host.failed_status, one.status);
    EXPECT_EQ(host.failed_driver_status, one.driver_status);
    EXPECT_THAT(host.failed_text, HasSubstr(one.text));
    EXPECT_EQ(factory().create(0, host.raw()), nullptr);
  }
  script.throws.clear();
}

TEST_F(SdkPlugin, CreateOfAnUnknownPluginIsRefused) {
  EXPECT_EQ(factory().create(2, host.raw()), nullptr);
  EXPECT_EQ(host.failed_status, CTXB_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(factory().create(0, nullptr), nullptr);
}

TEST_F(SdkPlugin, MissingGpuExtensionIsNamed) {
  host.offers_gpu = false;
  create();
  EXPECT_EQ(plugin->activate(plugin, &activation), CTXB_ERROR_UNSUPPORTED);
  EXPECT_THAT(host.failed_text, HasSubstr(CTXB_EXT_GPU));
}

TEST_F(SdkPlugin, GpuFailuresBecomeStatusAndText) {
  create();
  host.next_status = CTXB_ERROR_OUT_OF_DEVICE_MEMORY;
  EXPECT_EQ(plugin->activate(plugin, &activation), CTXB_ERROR_OUT_OF_DEVICE_MEMORY);
  host.next_status = CTXB_OK;
  EXPECT_EQ(plugin->activate(plugin, &activation), CTXB_OK);
  host.next_status = CTXB_ERROR_DRIVER;
  EXPECT_EQ(plugin->process(plugin, &job), CTXB_ERROR_DRIVER);
  EXPECT_THAT(host.failed_text, HasSubstr("'probe'"));
  host.next_status = CTXB_OK;
}

TEST_F(SdkPlugin, ProcessBeforeActivateIsRefused) {
  create();
  EXPECT_EQ(plugin->process(plugin, &job), CTXB_ERROR_WRONG_STATE);
}

TEST_F(SdkPlugin, BuffersThatBreakTheContractAreRefused) {
  create_active();
  buffer.row_pitch = 20;
  EXPECT_EQ(plugin->process(plugin, &job), CTXB_ERROR_INVALID_ARGUMENT);
  buffer.row_pitch = 64;
  buffer.media = CTXB_MEDIA_AUDIO;
  EXPECT_EQ(plugin->process(plugin, &job), CTXB_ERROR_INVALID_ARGUMENT);
  buffer.media = CTXB_MEDIA_IMAGE;
  job.input_count = 0;
  EXPECT_EQ(plugin->process(plugin, &job), CTXB_ERROR_INVALID_ARGUMENT);
  job.input_count = 1;
  job.parameter_count = 3;
  EXPECT_LT(plugin->process(plugin, &job), 0);
  EXPECT_THAT(host.failed_text, HasSubstr("'colour'"));
}

TEST_F(SdkPlugin, DestroyEndsTheObject) {
  create();
  plugin->destroy(plugin);
  plugin = nullptr;
  EXPECT_EQ(script.destroyed, 1);
}

TEST_F(SdkPlugin, ExtensionsOfTheClassAreOffered) {
  create();
  EXPECT_EQ(plugin->get_extension(plugin, "ctxbroker.another/1"), nullptr);
  const auto* late =
      static_cast<const ctxb_latency_extension*>(plugin->get_extension(plugin, CTXB_EXT_LATENCY));
  EXPECT_EQ(late->latency(plugin), 77U);
  EXPECT_EQ(late->tail(plugin), CTXB_TAIL_INFINITE);
  const auto* callback =
      static_cast<const ctxb_callback_extension*>(plugin->get_extension(plugin, CTXB_EXT_CALLBACK));
  callback->on_main_thread(plugin);
  EXPECT_EQ(script.callbacks, 1);
  plugin->destroy(plugin);
  create(1);
  for (const char* id :
       {CTXB_EXT_STATE, CTXB_EXT_LATENCY, CTXB_EXT_CALLBACK, CTXB_EXT_PARAMETER_TEXT}) {
    EXPECT_EQ(plugin->get_extension(plugin, id), nullptr);
  }
  buffer.media = CTXB_MEDIA_AUDIO;
  EXPECT_EQ(plugin->process(plugin, &job), CTXB_AGAIN);
}

}  // namespace
