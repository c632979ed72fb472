// SPDX-License-Identifier: Apache-2.0
// A plug-in's state goes through the host's streams, whose calls may do less than they are asked.
#include <gmock/gmock.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "ctxbroker/plugin.hpp"
#include "fake_host.hpp"

namespace {

using namespace ctxbroker::sdk;
using ctxbroker::test::FakeHost;
using testing::HasSubstr;

// A number and a text to remember.
class Remembering final : public Plugin, public Stateful {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::image("org.test.remembering", "Remembering", "1.0.0");
  static inline std::uint32_t loaded = 0;

  using Plugin::Plugin;
  void activate(const Activation&) override {}
  Outcome process(const Job&) override { return Outcome::done; }
  void save(StateWriter& writer) const override {
    writer.write(std::uint32_t{77});
    writer.write_bytes("abcdefgh", 8);
  }
  void load(StateReader& reader) override {
    const auto number = reader.read<std::uint32_t>();
    char text[8];
    reader.read_bytes(text, 8);
    reader.expect_end();
    EXPECT_EQ(std::string(text, 8), "abcdefgh");
    loaded = number;
  }
};

// A host's file, which takes and gives three bytes at a time, or fails.
struct File {
  std::string data;
  std::size_t at = 0;
  bool broken = false;

  std::int64_t take(const void* source, std::uint64_t size) {
    if (broken) return -1;
    const std::uint64_t some = size < 3 ? size : 3;
    data.append(static_cast<const char*>(source), some);
    return static_cast<std::int64_t>(some);
  }
  std::int64_t give(void* target, std::uint64_t size) {
    if (broken) return -1;
    const std::size_t some = data.copy(static_cast<char*>(target), size < 3 ? size : 3, at);
    at += some;
    return static_cast<std::int64_t>(some);
  }
};

class SdkState : public testing::Test {
 public:
  ~SdkState() override { plugin->destroy(plugin); }

 protected:
  SdkState() : plugin(Library<Remembering>::create(0, host.raw())) { Remembering::loaded = 0; }

  const ctxb_state_extension& extension() const {
    return *static_cast<const ctxb_state_extension*>(plugin->get_extension(plugin, CTXB_EXT_STATE));
  }
  ctxb_status save() { return extension().save(plugin, &out); }
  ctxb_status load() {
    file.at = 0;
    return extension().load(plugin, &in);
  }

  FakeHost host;
  const ctxb_plugin* plugin;
  File file;
  const ctxb_output_stream out{
      sizeof out, &file,
      [](const ctxb_output_stream* self, const void* source, std::uint64_t size) {
        return static_cast<File*>(self->data)->take(source, size);
      }};
  const ctxb_input_stream in{sizeof in, &file,
                             [](const ctxb_input_stream* self, void* target, std::uint64_t size) {
                               return static_cast<File*>(self->data)->give(target, size);
                             }};
};

TEST_F(SdkState, StateGoesThroughShortReadsAndWrites) {
  ASSERT_EQ(save(), CTXB_OK);
  EXPECT_EQ(file.data.size(), 12U);
  ASSERT_EQ(load(), CTXB_OK) << host.failed_text;
  EXPECT_EQ(Remembering::loaded, 77U);
}

TEST_F(SdkState, StateOfAnotherLengthIsRefused) {
  ASSERT_EQ(save(), CTXB_OK);
  file.data.pop_back();
  EXPECT_LT(load(), 0);
  EXPECT_THAT(host.failed_text, HasSubstr("ends too early"));
  file.data += "xyz";
  EXPECT_LT(load(), 0);
  EXPECT_THAT(host.failed_text, HasSubstr("longer"));
  EXPECT_EQ(Remembering::loaded, 0U);
}

TEST_F(SdkState, StateThatTheHostCannotMoveIsAnError) {
  file.broken = true;
  EXPECT_LT(save(), 0);
  EXPECT_THAT(host.failed_text, HasSubstr("could not take"));
  EXPECT_LT(load(), 0);
  EXPECT_THAT(host.failed_text, HasSubstr("cannot be read"));
}

}  // namespace
