// SPDX-License-Identifier: Apache-2.0
// Loading plug-in libraries: sound ones, and every kind of broken one.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(BrokerTest, ALibraryIsATenantWithDescriptions) {
  const PluginLibrary library = behaviours();
  EXPECT_EQ(library.name(), "behaviours");
  EXPECT_NE(library.tenant(), host_tenant);
  EXPECT_EQ(library.path().filename(), "behaviours.so");
  const PluginDescription& affine = library.plugins().front();
  EXPECT_EQ(affine.id, "com.example.test.affine");
  EXPECT_EQ(affine.short_name, "affine");
  EXPECT_EQ(affine.library_path, library.path().string());
  EXPECT_EQ(affine.parameters.size(), 3u);
}

TEST_F(BrokerTest, TheSameFileIsTheSameTenantAndAnotherIsAnother) {
  const auto link = std::filesystem::temp_directory_path() / "ctxb_behaviours_link.so";
  std::filesystem::remove(link);
  std::filesystem::create_symlink(test_plugin("behaviours"), link);
  const PluginLibrary one = behaviours(), same = broker.load(link);
  const PluginLibrary twin = broker.load(test_plugin("behaviours_twin"));
  std::filesystem::remove(link);
  EXPECT_EQ(one.tenant(), same.tenant());
  EXPECT_NE(one.tenant(), twin.tenant());
}

TEST_F(BrokerTest, AReloadedFileKeepsItsTenant) {
  const TenantId first = behaviours().tenant();
  EXPECT_EQ(behaviours().tenant(), first);
}

TEST_F(BrokerTest, LibrariesStayResidentUnlessTheySayTheyCanGo) {
  behaviours();
  EXPECT_TRUE(is_mapped(test_plugin("behaviours")));
  {
    const PluginLibrary library = broker.load(test_plugin("unloadable"));
    EXPECT_TRUE(is_mapped(test_plugin("unloadable")));
  }
  EXPECT_FALSE(is_mapped(test_plugin("unloadable")));
}

TEST_F(BrokerTest, AnInstanceKeepsItsLibrary) {
  PluginInstance instance = [&] {
    return broker.create(broker.load(test_plugin("unloadable")), "small");
  }();
  EXPECT_TRUE(is_mapped(test_plugin("unloadable")));
  instance.activate(test_sizes);
  EXPECT_EQ(run({&instance})[5], 5.0F);
}

TEST_F(BrokerTest, UnknownPluginsAreRefusedWithTheKnownOnes) {
  const PluginLibrary library = broker.load(test_plugin("unloadable"));
  EXPECT_THAT(
      error_text(ErrorKind::plugin_not_found, [&] { return broker.create(library, "large"); }),
      AllOf(HasSubstr("\"large\""), HasSubstr("small")));
}

TEST_F(BrokerTest, AForeignBrokersLibraryIsRefused) {
  Broker other = Broker::open_without_driver();
  const PluginLibrary library = other.load(test_plugin("unloadable"));
  error_text(ErrorKind::invalid_argument, [&] { return broker.create(library, "small"); });
}

struct Fault {
  const char* file;
  ErrorKind kind;
  const char* says;
};

class BrokenLibraryTest : public BrokerTest, public ::testing::WithParamInterface<Fault> {};

TEST_P(BrokenLibraryTest, BrokenLibraryIsRefusedWithNameAndReason) {
  const Fault& fault = GetParam();
  const auto path = test_plugin(fault.file);
  ASSERT_TRUE(std::filesystem::exists(path)) << path;
  for (int attempt = 0; attempt < 2; ++attempt) {  // a refusal leaves nothing behind
    EXPECT_THAT(error_text(fault.kind, [&] { return broker.load(path); }),
                AllOf(HasSubstr(path.filename().string()), HasSubstr(fault.says)));
  }
  broker.close();  // nothing is alive
}

INSTANTIATE_TEST_SUITE_P(
    All, BrokenLibraryTest,
    ::testing::Values(
        Fault{"broken_text", ErrorKind::plugin_load, "invalid ELF header"},
        Fault{"broken_missing_symbol", ErrorKind::plugin_load,
              "undefined symbol: ctxb_test_symbol_that_nobody_has"},
        Fault{"broken_missing_library", ErrorKind::plugin_load,
              "libctxb_test_nowhere.so.1: cannot open shared object file: No such file or "
              "directory; install that library, or name its folder in LD_LIBRARY_PATH"},
        Fault{"broken_no_entry", ErrorKind::plugin_entry, "does not export ctxb_plugin_entry"},
        Fault{"broken_entry_size", ErrorKind::plugin_entry, "a size of 12 bytes"},
        Fault{"broken_entry_functions", ErrorKind::plugin_entry, "is null"},
        Fault{"broken_abi_major", ErrorKind::plugin_version, "plug-in ABI 2.0; this host has 1.0"},
        Fault{"broken_init_fails", ErrorKind::plugin_init, "CTXB_ERROR_UNAVAILABLE"},
        Fault{"broken_init_throws", ErrorKind::plugin_init, "threw an exception"},
        Fault{"broken_no_factory", ErrorKind::plugin_entry, "ctxbroker.plugin-factory/1"},
        Fault{"broken_factory_functions", ErrorKind::plugin_entry, "create is null"},
        Fault{"broken_no_plugins", ErrorKind::plugin_entry, "counts 0 plug-ins"},
        Fault{"broken_bad_descriptor", ErrorKind::plugin_entry, "com.example.name"}),
    [](const auto& test) { return std::string(test.param.file); });

TEST_F(BrokerTest, FilesThatAreNoLibrariesAreRefused) {
  EXPECT_THAT(
      error_text(ErrorKind::plugin_not_found, [&] { return broker.load("/no/such/file.so"); }),
      AllOf(HasSubstr("/no/such/file.so"), HasSubstr("No such file")));
  EXPECT_THAT(error_text(ErrorKind::plugin_load, [&] { return broker.load("/tmp"); }),
              HasSubstr("is not a file"));
  EXPECT_THAT(error_text(ErrorKind::plugin_load, [&] { return broker.load("/proc/self/exe"); }),
              HasSubstr("this program itself"));
}

TEST_F(BrokerTest, TruncatedLibraryIsRefusedByTheLoader) {
  const auto cut = std::filesystem::temp_directory_path() / "ctxb_cut.so";
  for (const std::size_t bytes : {0u, 3u, 60u, 500u}) {
    std::filesystem::copy_file(test_plugin("behaviours"), cut,
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(cut, bytes);
    error_text(ErrorKind::plugin_load, [&] { return broker.load(cut); });
  }
  std::filesystem::remove(cut);
}

}  // namespace
}  // namespace ctxbroker
