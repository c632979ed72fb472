// SPDX-License-Identifier: Apache-2.0
// Built-in images that are not what was built any more, and how the broker knows.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

#include "broker_fixture.hpp"
#include "image/image.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A plug-in as ctxb_add_plugin makes it, with a bit turned over in the middle of its first image.
class DamagedLibrary : public BrokerTest {
 public:
  ~DamagedLibrary() override { std::filesystem::remove_all(folder_); }

 protected:
  explicit DamagedLibrary(const std::string& plugin = "typed") : plugin_(plugin) {
    std::ifstream file(test_plugin(plugin), std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    const std::size_t at = bytes_.find("\x50\xed\x55\xba");
    EXPECT_NE(at, std::string::npos) << "no fatbin";
    const std::size_t size = image::image_size(bytes_.data() + at);
    checksum_ = image::checksum_of(std::as_bytes(std::span(bytes_.data() + at, size)));
    bytes_[at + size / 2] = static_cast<char>(bytes_[at + size / 2] ^ 1);
  }

  // Why it is not activated; empty: it is.
  std::string refusal() {
    std::filesystem::create_directory(folder_);
    const std::filesystem::path copy = folder_ / (plugin_ + ".so");
    std::ofstream(copy, std::ios::binary) << bytes_;
    PluginInstance instance = broker.create(broker.load(copy), plugin_);
    try {
      instance.activate(test_sizes);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kernel_image);
      return error.what();
    }
    return {};
  }
  // Removes the checksum from the library, as if the plug-in had been built without one. Returns
  // false if the library does not contain this checksum.
  bool take_checksum_away() {
    const std::size_t at = bytes_.find(std::string(reinterpret_cast<char*>(&checksum_), 4));
    if (at == std::string::npos) return false;
    bytes_.replace(at, 4, 4, '\0');
    return true;
  }

  const std::string plugin_;
  // One for each test: a library that stays in the process would be found again by its path.
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() /
      ("ctxb_damaged_" + std::to_string(getpid()) + "_" +
       ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::string bytes_;
  std::uint32_t checksum_ = 0;
};

TEST_F(DamagedLibrary, DamagedImageIsRefusedByItsChecksum) {
  EXPECT_THAT(refusal(), AllOf(HasSubstr("module \"mixed\" cannot be loaded: the checksum"),
                               HasSubstr("and was " + std::to_string(checksum_)),
                               HasSubstr("install the plug-in again")));
}

TEST_F(DamagedLibrary, DamagedImageWithoutChecksumIsLoadedOrRefusedByTheDriver) {
  ASSERT_TRUE(take_checksum_away());
  EXPECT_THAT(refusal(), Not(HasSubstr("checksum")));
}

class DamagedPart : public DamagedLibrary {
 protected:
  DamagedPart() : DamagedLibrary("linking") {}
};

TEST_F(DamagedPart, DamagedPartIsRefusedByItsChecksum) {
  EXPECT_THAT(refusal(), AllOf(HasSubstr("part \""), HasSubstr("of module \"linking\""),
                               HasSubstr("the checksum")));
}

}  // namespace
}  // namespace ctxbroker
