#include "module/module_image.hpp"

#include <elf.h>
#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <string_view>

#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::HasSubstr;

ModuleImage image_of(const void* data, std::size_t size) {
  return {"blur", static_cast<const std::byte*>(data), size, {}};
}

std::string refusal(const ModuleImage& image) {
  try {
    checked_copy(image);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kernel_image);
    EXPECT_THAT(error.what(), HasSubstr("\"blur\""));
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

TEST(ModuleImageTest, TextGetsAnEnd) {
  constexpr std::string_view text = ".version 7.0";
  const auto copy = checked_copy(image_of(text.data(), text.size()));
  ASSERT_EQ(copy.size(), text.size() + 1);
  EXPECT_STREQ(reinterpret_cast<const char*>(copy.data()), ".version 7.0");
}

TEST(ModuleImageTest, ShortGarbageIsTheDriversToRefuse) {
  EXPECT_EQ(checked_copy(image_of("x", 1)).size(), 2u);
}

TEST(ModuleImageTest, AFatbinMustHaveItsWholeLength) {
  struct {
    std::uint32_t magic = 0xBA55ED50;
    std::uint16_t version = 1, header_bytes = 16;
    std::uint64_t content_bytes = 16;
    std::uint64_t content[2] = {1, 2};
  } fatbin;
  EXPECT_NO_THROW(checked_copy(image_of(&fatbin, sizeof fatbin)));
  EXPECT_THAT(refusal(image_of(&fatbin, sizeof fatbin - 1)), HasSubstr("cut off before its end"));
  EXPECT_THAT(refusal(image_of(&fatbin, 8)), HasSubstr("cut off in its header"));
  fatbin.content_bytes = ~std::uint64_t{0};
  EXPECT_THAT(refusal(image_of(&fatbin, sizeof fatbin)), HasSubstr("cut off"));
}

TEST(ModuleImageTest, AnElfFilesTablesMustBeInside) {
  struct {
    Elf64_Ehdr header{};
    Elf64_Shdr sections[2]{};
  } elf;
  std::memcpy(elf.header.e_ident, ELFMAG, SELFMAG);
  elf.header.e_shoff = sizeof(Elf64_Ehdr);
  elf.header.e_shentsize = sizeof(Elf64_Shdr);
  elf.header.e_shnum = 2;
  EXPECT_NO_THROW(checked_copy(image_of(&elf, sizeof elf)));
  EXPECT_THAT(refusal(image_of(&elf, sizeof elf - 1)), HasSubstr("cut off before its end"));
  EXPECT_THAT(refusal(image_of(&elf, 20)), HasSubstr("cut off in its header"));
  elf.sections[1].sh_type = SHT_PROGBITS;
  elf.sections[1].sh_offset = 64;
  elf.sections[1].sh_size = ~std::uint64_t{0};
  EXPECT_THAT(refusal(image_of(&elf, sizeof elf)), HasSubstr("beyond its end"));
}

}  // namespace
}  // namespace ctxbroker::detail
