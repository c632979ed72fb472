// SPDX-License-Identifier: Apache-2.0
// Every lie a descriptor can tell, one at a time, on top of one that is sound.
#include "plugin/descriptor_reader.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ctxbroker/error.hpp"
#include "plugin/foreign_text.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A sound descriptor and everything it points to, to be spoilt.
struct Sample {
  const char* choices[3] = {"low", "high", nullptr};
  const char* endings[3] = {".wav", ".flac", nullptr};
  const char* features[2] = {"blur", nullptr};
  const char* kernels[2] = {"run", nullptr};
  ctxb_parameter parameters[2] = {};
  ctxb_module modules[2] = {};
  ctxb_port inputs[2] = {};
  ctxb_port outputs[2] = {};
  ctxb_plugin_descriptor descriptor = {};

  Sample() {
    for (ctxb_parameter& parameter : parameters) {
      parameter.size = sizeof parameter;
      parameter.unit = "";
      parameter.description = "What it does.";
    }
    parameters[0].type = CTXB_PARAMETER_FLOAT;
    parameters[0].id = "stops";
    parameters[0].name = "Stops";
    parameters[0].unit = "EV";
    parameters[0].minimum = -10;
    parameters[0].maximum = 10;
    parameters[0].flags = CTXB_PARAMETER_AUTOMATABLE;
    parameters[1].type = CTXB_PARAMETER_CHOICE;
    parameters[1].id = "mode";
    parameters[1].name = "Mode";
    parameters[1].maximum = 1;
    parameters[1].default_numbers[0] = 1;
    parameters[1].choices = choices;
    for (ctxb_module& module : modules) {
      module.size = sizeof module;
      module.name = &module == modules ? "first" : "second";
      module.data = ".version 7.0";
      module.data_size = 13;
    }
    modules[0].kernels = kernels;
    inputs[0] = {sizeof(ctxb_port), 0, "in", "Input", CTXB_CHANNELS_ANY, CTXB_SAMPLE_FLOAT, 0, 0};
    inputs[1] = {sizeof(ctxb_port),
                 CTXB_PORT_SIDE_CHAIN | CTXB_PORT_OPTIONAL,
                 "key",
                 "Key",
                 CTXB_CHANNELS(1) | CTXB_CHANNELS(2),
                 CTXB_SAMPLE_FLOAT,
                 0,
                 0};
    outputs[0] = {sizeof(ctxb_port), 0, "out", "Output", CTXB_CHANNELS_ANY,
                  CTXB_SAMPLE_FLOAT, 0, 1};
    outputs[1] = {sizeof(ctxb_port), CTXB_PORT_RESULTS, "peaks", "Peaks", 0, 0, 64, 0};
    descriptor = {sizeof(ctxb_plugin_descriptor),
                  CTXB_MEDIA_AUDIO,
                  "com.example.gain",
                  "Gain",
                  "Example",
                  "1.2.3",
                  "Louder.",
                  features,
                  CTXB_PLUGIN_REALTIME,
                  CTXB_CUDA_KERNELS,
                  CTXB_LEASE_PRIVATE,
                  CTXB_CONCURRENCY_LIBRARY,
                  7,
                  5,
                  parameters,
                  2,
                  2,
                  modules,
                  inputs,
                  outputs,
                  2,
                  2};
  }

  // Turns the first parameter into a sound one of text.
  ctxb_parameter& make_text(std::uint32_t type) {
    parameters[0].type = type;
    parameters[0].minimum = parameters[0].maximum = 0;
    parameters[0].unit = "";
    parameters[0].flags = 0;
    return parameters[0];
  }
};

TEST(DescriptorReaderTest, SoundDescriptorIsCopied) {
  const Sample sample;
  const PluginRecord record = read_descriptor(&sample.descriptor, "lib");
  const PluginDescription& plugin = record.description;
  EXPECT_EQ(plugin.id, "com.example.gain");
  EXPECT_EQ(plugin.short_name, "gain");
  EXPECT_EQ(plugin.media, Media::audio);
  EXPECT_EQ(plugin.cuda_use, CudaUse::kernels);
  EXPECT_EQ(plugin.lease_wish, LeaseKind::private_own);
  EXPECT_EQ(plugin.min_compute_minor, 5);
  EXPECT_THAT(plugin.features, ElementsAre("blur"));
  EXPECT_THAT(plugin.modules, ElementsAre("first", "second"));
  EXPECT_TRUE(record.one_at_a_time);
  ASSERT_EQ(plugin.parameters.size(), 2u);
  EXPECT_TRUE(plugin.parameters[0].automatable);
  EXPECT_EQ(plugin.parameters[0].minimum, -10);
  EXPECT_EQ(plugin.parameters[1].type, ParameterType::choice);
  EXPECT_THAT(plugin.parameters[1].choices, ElementsAre("low", "high"));
  EXPECT_THAT(record.modules[0].kernels, ElementsAre("run"));
  ASSERT_EQ(plugin.inputs.size(), 2u);
  EXPECT_EQ(plugin.inputs[0].id, "in");
  EXPECT_EQ(plugin.inputs[0].channels, CTXB_CHANNELS_ANY);
  EXPECT_TRUE(plugin.inputs[1].optional && plugin.inputs[1].side_chain);
  EXPECT_EQ(plugin.inputs[1].channels, 3u) << "mono or stereo";
  ASSERT_EQ(plugin.outputs.size(), 2u);
  EXPECT_EQ(plugin.outputs[0].in_place, 0);
  EXPECT_EQ(plugin.outputs[1].in_place, -1);
  EXPECT_EQ(plugin.outputs[1].result_bytes, 64u);
}

TEST(DescriptorReaderTest, ParameterGroupSkewAndFlagsAreCopied) {
  Sample sample;
  sample.parameters[0].skew = 3;
  sample.parameters[0].group = "Light";
  sample.parameters[0].flags |= CTXB_PARAMETER_HIDDEN | CTXB_PARAMETER_ADVANCED | 1u << 31;
  PluginDescription plugin = read_descriptor(&sample.descriptor, "lib").description;
  EXPECT_EQ(plugin.parameters[0].skew, 3);
  EXPECT_EQ(plugin.parameters[0].group, "Light");
  EXPECT_TRUE(plugin.parameters[0].hidden && plugin.parameters[0].advanced);
  EXPECT_EQ(plugin.parameters[1].skew, 1) << "0 is even, too";
  EXPECT_EQ(plugin.parameters[1].group, "");
  EXPECT_FALSE(plugin.parameters[1].hidden || plugin.parameters[1].advanced);

  sample.make_text(CTXB_PARAMETER_FILE).endings = sample.endings;
  sample.parameters[0].skew = 1;
  sample.parameters[0].default_text = "hall.WAV";
  plugin = read_descriptor(&sample.descriptor, "lib").description;
  EXPECT_EQ(plugin.parameters[0].type, ParameterType::file);
  EXPECT_EQ(plugin.parameters[0].default_text, "hall.WAV");
  EXPECT_THAT(plugin.parameters[0].endings, ElementsAre(".wav", ".flac"));
}

TEST(DescriptorReaderTest, ColoursAndPointsHaveDefaultsOfTheirOwnLength) {
  Sample sample;
  sample.parameters[0].type = CTXB_PARAMETER_COLOUR;
  for (int i = 0; i < 4; ++i) sample.parameters[0].default_numbers[i] = i + 0.5;
  EXPECT_EQ(read_descriptor(&sample.descriptor, "lib").description.parameters[0].default_value,
            ParameterValue(0.5, 1.5, 2.5, 3.5));
  sample.parameters[0].type = CTXB_PARAMETER_POINT;
  EXPECT_EQ(read_descriptor(&sample.descriptor, "lib").description.parameters[0].default_value,
            ParameterValue(0.5, 1.5));
}

TEST(DescriptorReaderTest, AGeneratorHasNoInputs) {
  Sample sample;
  sample.descriptor.input_count = 0;
  sample.outputs[0].in_place = 0;
  EXPECT_TRUE(read_descriptor(&sample.descriptor, "lib").description.inputs.empty());
}

TEST(DescriptorReaderTest, AnEmptyDescriptorHasNoParametersOrModules) {
  Sample sample;
  sample.descriptor.parameters = nullptr;
  sample.descriptor.parameter_count = 0;
  sample.descriptor.modules = nullptr;
  sample.descriptor.module_count = 0;
  sample.descriptor.features = nullptr;
  const PluginRecord record = read_descriptor(&sample.descriptor, "lib");
  EXPECT_TRUE(record.description.parameters.empty());
  EXPECT_TRUE(record.modules.empty());
}

TEST(DescriptorReaderTest, ALaterMinorsLongerStructsAreStridden) {
  struct LongParameter {
    ctxb_parameter known;
    double unknown[4];
  };
  Sample sample;
  LongParameter parameters[2] = {{sample.parameters[0], {9, 9, 9, 9}},
                                 {sample.parameters[1], {9, 9, 9, 9}}};
  for (auto& one : parameters) one.known.size = sizeof(LongParameter);
  sample.descriptor.parameters = &parameters[0].known;
  const PluginRecord record = read_descriptor(&sample.descriptor, "lib");
  EXPECT_EQ(record.description.parameters[1].id, "mode");
}

// Everything that a module can be made of.
struct ModuleSample : Sample {
  ctxb_module_part parts[2] = {};
  const char* options[2] = {"-DTAPS=8", nullptr};
  ctxb_cuda_source source{sizeof(ctxb_cuda_source), "x.cu", "text", options};
  ctxb_jit_options jit{sizeof(ctxb_jit_options), CTXB_JIT_VERBOSE, 32, CTXB_JIT_LEVEL(2), 90, 4, 0};

  ModuleSample() {
    parts[0] = {sizeof(ctxb_module_part), "a", "x", 1, nullptr, 7};
    parts[1] = {sizeof(ctxb_module_part), "b", nullptr, 0, "b.o", 0};
    modules[0].data = nullptr;
    modules[0].parts = parts;
    modules[0].part_count = 2;
    modules[0].jit = &jit;
    modules[1].data = nullptr;
    modules[1].source = &source;
    modules[1].file = "x.cu";
    modules[1].file_options = options;
    modules[1].flags = CTXB_MODULE_DEVELOPMENT | CTXB_MODULE_ON_FIRST_USE | 1u << 31;
  }
};

TEST(DescriptorReaderTest, ModulePartsAndOptionsAreRead) {
  const ModuleSample sample;
  const PluginRecord record = read_descriptor(&sample.descriptor, "lib");
  const ModuleImage& linked = record.modules[0];
  ASSERT_EQ(linked.parts.size(), 2u);
  EXPECT_EQ(linked.parts[0].size, 1u);
  EXPECT_EQ(linked.parts[0].checksum, 7u);
  EXPECT_EQ(linked.parts[1].file, "b.o");
  EXPECT_EQ(linked.jit.max_registers, 32u);
  EXPECT_EQ(linked.jit.optimisation, 3u) << "level 2, from 1";
  EXPECT_EQ(linked.jit.target, 90u);
  EXPECT_TRUE(linked.jit.verbose && !linked.jit.debug_info && !linked.on_first_use);
  const ModuleImage& compiled = record.modules[1];
  ASSERT_TRUE(compiled.source.has_value());
  EXPECT_THAT(compiled.source->options, ElementsAre("-DTAPS=8"));
  EXPECT_TRUE(compiled.development && compiled.on_first_use);
  EXPECT_EQ(compiled.file, "x.cu");
  EXPECT_THAT(compiled.file_options, ElementsAre("-DTAPS=8"));
}

TEST(DescriptorReaderTest, BadModulePartsAreRefused) {
  const auto says = [](const char* why, const std::function<void(ModuleSample&)>& spoil) {
    ModuleSample sample;
    spoil(sample);
    try {
      read_descriptor(&sample.descriptor, "lib");
      ADD_FAILURE() << "accepted; expected: " << why;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  };
  says("data is null", [](auto& s) { s.modules[0].part_count = 0; });
  says("parts is null", [](auto& s) { s.modules[0].parts = nullptr; });
  says("part_count is absurd", [](auto& s) { s.modules[0].part_count = 1u << 30; });
  says("parts[0].size", [](auto& s) { s.parts[0].size = 8; });
  says("parts[0].size", [](auto& s) { s.parts[0].size -= 8; });
  says("parts differ in size", [](auto& s) { s.parts[1].size += 8; });
  says("part b: data and file are null", [](auto& s) { s.parts[1].file = nullptr; });
  says("a part's name", [](auto& s) { s.parts[0].name = nullptr; });
  says("more than one of", [](auto& s) { s.modules[0].data = "x"; });
  says("source->size", [](auto& s) { s.source.size = 4; });
  says("source x.cu: text is null", [](auto& s) { s.source.text = nullptr; });
  says("jit->size", [](auto& s) { s.jit.size = 12; });
  says("above level 4", [](auto& s) { s.jit.optimisation = 6; });
  says("above 1 MiB", [](auto& s) { s.jit.log_bytes = 1u << 21; });
  says("needs a file to watch", [](auto& s) { s.modules[1].file = nullptr; });
}

TEST(DescriptorReaderTest, NeedForNvidiasDriverIsRead) {
  Sample sample;
  EXPECT_FALSE(read_descriptor(&sample.descriptor, "lib").description.needs_nvidia_driver);
  sample.descriptor.flags |= CTXB_PLUGIN_NEEDS_NVIDIA_DRIVER;
  EXPECT_TRUE(read_descriptor(&sample.descriptor, "lib").description.needs_nvidia_driver);
}

TEST(DescriptorReaderTest, LeaseWishIsRead) {
  Sample sample;
  sample.descriptor.lease = CTXB_LEASE_GREEN;
  const PluginRecord record = read_descriptor(&sample.descriptor, "lib");
  EXPECT_EQ(record.description.lease_wish, LeaseKind::green);
}

TEST(DescriptorReaderTest, UnknownFlagsOfALaterMinorAreNoError) {
  Sample sample;
  sample.descriptor.flags |= 1u << 31;
  EXPECT_NO_THROW(read_descriptor(&sample.descriptor, "lib"));
}

struct Lie {
  const char* name;
  std::function<void(Sample&)> spoil;
  const char* says;
};

const std::string endless(longest_text + 1, 'a');
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

std::vector<Lie> lies() {
  return {
      {"short_struct", [](Sample& s) { s.descriptor.size = 8; }, "shorter than version 1.0"},
      {"absurd_struct", [](Sample& s) { s.descriptor.size = 1u << 30; }, "shorter"},
      {"null_id", [](Sample& s) { s.descriptor.id = nullptr; }, "id is null"},
      {"plain_id", [](Sample& s) { s.descriptor.id = "gain"; }, "com.example.name"},
      {"odd_id", [](Sample& s) { s.descriptor.id = "com.ex ample"; }, "com.example.name"},
      {"null_name", [](Sample& s) { s.descriptor.name = nullptr; }, "name is null"},
      {"empty_name", [](Sample& s) { s.descriptor.name = ""; }, "name is empty"},
      {"dirty_vendor", [](Sample& s) { s.descriptor.vendor = "\xFF"; }, "vendor"},
      {"endless_text", [](Sample& s) { s.descriptor.description = endless.c_str(); }, "too long"},
      {"empty_version", [](Sample& s) { s.descriptor.version = ""; }, "version is empty"},
      {"no_media", [](Sample& s) { s.descriptor.media = 0; }, "media is 0"},
      {"no_use", [](Sample& s) { s.descriptor.cuda_use = 9; }, "cuda_use is 9"},
      {"no_lease", [](Sample& s) { s.descriptor.lease = 77; }, "lease is 77"},
      {"no_concurrency", [](Sample& s) { s.descriptor.concurrency = 5; }, "concurrency"},
      {"compute", [](Sample& s) { s.descriptor.min_compute_major = 99999; }, "compute"},
      {"many_parameters", [](Sample& s) { s.descriptor.parameter_count = 1u << 30; }, "absurd"},
      {"null_parameters", [](Sample& s) { s.descriptor.parameters = nullptr; },
       "parameters is null"},
      {"short_parameter", [](Sample& s) { s.parameters[0].size = 16; }, "parameters[0].size"},
      {"odd_parameter", [](Sample& s) { s.parameters[0].size += 3; }, "parameters[0].size"},
      {"unequal_parameters", [](Sample& s) { s.parameters[1].size += 8; }, "differ in size"},
      {"parameter_id", [](Sample& s) { s.parameters[0].id = "Stops"; }, "[a-z0-9_]"},
      {"same_ids", [](Sample& s) { s.parameters[1].id = "stops"; }, "two parameters"},
      {"parameter_type", [](Sample& s) { s.parameters[0].type = 12; }, "type is 12"},
      {"null_unit", [](Sample& s) { s.parameters[0].unit = nullptr; }, "unit is null"},
      {"turned_range", [](Sample& s) { s.parameters[0].minimum = 11; }, "minimum is above"},
      {"nan_range", [](Sample& s) { s.parameters[0].maximum = not_a_number; }, "finite"},
      {"wide_range",
       [](Sample& s) {
         s.parameters[0].maximum = std::numeric_limits<double>::max();
         s.parameters[0].minimum = -s.parameters[0].maximum;
       },
       "maximum less minimum must be finite"},
      {"default_outside", [](Sample& s) { s.parameters[0].default_numbers[0] = 11; },
       "default_numbers"},
      {"choices_of_float", [](Sample& s) { s.parameters[0].choices = s.choices; }, "choices"},
      {"no_choices", [](Sample& s) { s.parameters[1].choices = nullptr; }, "choices"},
      {"same_choices", [](Sample& s) { s.choices[1] = "low"; }, "same name"},
      {"choice_range", [](Sample& s) { s.parameters[1].maximum = 2; }, "number of its names"},
      {"choice_fraction", [](Sample& s) { s.parameters[1].default_numbers[0] = 0.5; }, "whole"},
      {"boolean_range", [](Sample& s) { s.parameters[0].type = CTXB_PARAMETER_BOOLEAN; }, "0 to 1"},
      {"infinite_default", [](Sample& s) { s.parameters[0].default_numbers[0] = -1 / 0.0; },
       "finite"},
      {"turned_skew", [](Sample& s) { s.parameters[0].skew = -1; }, "skew is not above 0"},
      {"nan_skew", [](Sample& s) { s.parameters[0].skew = not_a_number; }, "skew is not above 0"},
      {"skewed_choice", [](Sample& s) { s.parameters[1].skew = 2; }, "floats and integers"},
      {"dirty_group", [](Sample& s) { s.parameters[0].group = "\xFF"; }, "group"},
      {"text_of_number", [](Sample& s) { s.parameters[0].default_text = "x"; },
       "default_text belongs to"},
      {"endings_of_number", [](Sample& s) { s.parameters[0].endings = s.choices; },
       "endings belong to files"},
      {"colour_outside",
       [](Sample& s) {
         s.parameters[0].type = CTXB_PARAMETER_COLOUR;
         s.parameters[0].default_numbers[3] = 11;
       },
       "default_numbers are outside"},
      {"automatable_string", [](Sample& s) { s.make_text(CTXB_PARAMETER_STRING).flags = 1; },
       "cannot be automatable"},
      {"string_range", [](Sample& s) { s.make_text(CTXB_PARAMETER_STRING).maximum = 1; },
       "no range"},
      {"string_unit", [](Sample& s) { s.make_text(CTXB_PARAMETER_STRING).unit = "px"; }, "no unit"},
      {"skewed_string", [](Sample& s) { s.make_text(CTXB_PARAMETER_STRING).skew = 2; }, "no skew"},
      {"dirty_string", [](Sample& s) { s.make_text(CTXB_PARAMETER_STRING).default_text = "\x01"; },
       "default_text"},
      {"endings_of_string",
       [](Sample& s) { s.make_text(CTXB_PARAMETER_STRING).endings = s.endings; },
       "endings belong to files"},
      {"default_file_of_another_kind",
       [](Sample& s) {
         ctxb_parameter& file = s.make_text(CTXB_PARAMETER_FILE);
         file.endings = s.endings;
         file.default_text = "voice.mp3";
       },
       ".wav, .flac"},
      {"no_output", [](Sample& s) { s.descriptor.output_count = 0; }, "no output"},
      {"many_inputs", [](Sample& s) { s.descriptor.input_count = 65; }, "input_count is absurd"},
      {"null_outputs", [](Sample& s) { s.descriptor.outputs = nullptr; }, "outputs is null"},
      {"short_port", [](Sample& s) { s.inputs[0].size = 8; }, "inputs[0].size"},
      {"port_id", [](Sample& s) { s.inputs[0].id = "A"; }, "[a-z0-9_]"},
      {"same_ports", [](Sample& s) { s.inputs[1].id = "in"; }, "two inputs"},
      {"port_name", [](Sample& s) { s.outputs[0].name = ""; }, "output out: name is empty"},
      {"no_channels", [](Sample& s) { s.inputs[0].channels = 0; }, "channels is 0"},
      {"no_samples", [](Sample& s) { s.inputs[0].samples = 1u << 9; }, "samples"},
      {"half_audio", [](Sample& s) { s.inputs[0].samples = CTXB_SAMPLE_HALF; }, "samples"},
      {"input_in_place", [](Sample& s) { s.inputs[0].in_place = 1; }, "in_place"},
      {"in_place_of_none", [](Sample& s) { s.outputs[0].in_place = 3; }, "in_place"},
      {"side_chain_output", [](Sample& s) { s.outputs[0].flags = CTXB_PORT_SIDE_CHAIN; },
       "side-chain"},
      {"side_chain_image", [](Sample& s) { s.descriptor.media = CTXB_MEDIA_IMAGE; }, "side-chain"},
      {"results_in", [](Sample& s) { s.inputs[0].flags = CTXB_PORT_RESULTS; }, "input has results"},
      {"no_results", [](Sample& s) { s.outputs[1].result_bytes = 0; }, "result_bytes"},
      {"many_results", [](Sample& s) { s.outputs[1].result_bytes = 65537; }, "result_bytes"},
      {"results_of_none", [](Sample& s) { s.inputs[0].result_bytes = 4; }, "result_bytes"},
      {"results_with_channels", [](Sample& s) { s.outputs[1].channels = 1; }, "channels"},
      {"null_modules", [](Sample& s) { s.descriptor.modules = nullptr; }, "modules is null"},
      {"many_modules", [](Sample& s) { s.descriptor.module_count = 100000; }, "absurd"},
      {"short_module", [](Sample& s) { s.modules[0].size = 4; }, "modules[0].size"},
      {"shorter_module", [](Sample& s) { s.modules[0].size -= 8; }, "modules[0].size"},
      {"null_data", [](Sample& s) { s.modules[0].data = nullptr; }, "data is null"},
      {"no_data", [](Sample& s) { s.modules[0].data_size = 0; }, "data_size"},
      {"absurd_data", [](Sample& s) { s.modules[0].data_size = ~std::uint64_t{0}; }, "data_size"},
      {"same_modules", [](Sample& s) { s.modules[1].name = "first"; }, "two modules"},
      {"null_module_name", [](Sample& s) { s.modules[1].name = nullptr; }, "module's name"},
  };
}

TEST(DescriptorReaderTest, EveryLieIsRefusedWithItsPlace) {
  for (const Lie& lie : lies()) {
    SCOPED_TRACE(lie.name);
    Sample sample;
    lie.spoil(sample);
    try {
      read_descriptor(&sample.descriptor, "libgain.so");
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::plugin_entry);
      EXPECT_THAT(error.what(), HasSubstr("libgain.so"));
      EXPECT_THAT(error.what(), HasSubstr(lie.says));
    }
  }
}

// Each list is sound, and all of them together would take gigabytes.
TEST(DescriptorReaderTest, AllTextsTogetherAreLimited) {
  std::vector<std::string> names;
  std::vector<const char*> choices;
  for (int i = 0; i < 1000; ++i) names.push_back(std::to_string(i) + std::string(1000, 'a'));
  for (const std::string& name : names) choices.push_back(name.c_str());
  choices.push_back(nullptr);
  Sample sample;
  std::vector<ctxb_parameter> parameters(5, sample.parameters[1]);
  const char* const ids[] = {"a", "b", "c", "d", "e"};
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].id = ids[i];
    parameters[i].choices = choices.data();
    parameters[i].maximum = 999;
  }
  sample.descriptor.parameters = parameters.data();
  sample.descriptor.parameter_count = 3;
  EXPECT_EQ(read_descriptor(&sample.descriptor, "lib").description.parameters.size(), 3U);
  sample.descriptor.parameter_count = 5;
  try {
    read_descriptor(&sample.descriptor, "lib");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("its texts take more than 4 MiB in all"));
  }
}

TEST(DescriptorReaderTest, NullOrMisalignedDescriptorIsRefused) {
  EXPECT_THROW(read_descriptor(nullptr, "lib"), Error);
  const Sample sample;
  const auto* crooked = reinterpret_cast<const ctxb_plugin_descriptor*>(
      reinterpret_cast<std::uintptr_t>(&sample.descriptor) + 1);
  EXPECT_THROW(read_descriptor(crooked, "lib"), Error);
}

}  // namespace
}  // namespace ctxbroker::detail
