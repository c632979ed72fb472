// SPDX-License-Identifier: Apache-2.0
// Libraries with variables of the same name, of which the loader gives the process one
// (STB_GNU_UNIQUE).
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <memory>

#include "broker_fixture.hpp"
#include "ctxbroker/plugin.h"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

std::string id_of(const PluginLibrary& library) {
  return library.plugins().front().id;
}

// Returns the descriptor that the library gives to a program without the broker.
const ctxb_plugin_descriptor* described_by(const std::string& name) {
  void* const library = dlopen(test_plugin(name).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const auto* const entry =
      static_cast<const ctxb_plugin_entry_type*>(dlsym(library, "ctxb_plugin_entry"));
  const auto* const factory =
      static_cast<const ctxb_plugin_factory*>(entry->get_factory(CTXB_PLUGIN_FACTORY_ID));
  return factory->describe(0);
}

// Neither library hides anything, as when its author does not build it with ctxb_add_plugin.
TEST_F(BrokerTest, SdkLibrariesWithAClassOfTheSameNameAreThemselves) {
  const PluginLibrary one = broker.load(test_plugin("unique_sdk_one"));
  const PluginLibrary two = broker.load(test_plugin("unique_sdk_two"));
  EXPECT_EQ(id_of(one), "com.example.test.sdk_one");
  EXPECT_EQ(id_of(two), "com.example.test.sdk_two");
  PluginInstance first = broker.create(one, ""), second = broker.create(two, "");
  first.activate(test_sizes);
  second.activate(test_sizes);
}

TEST_F(BrokerTest, DescriptorOrFactoryInAnotherLibraryIsRefusedWithThatLibrary) {
  for (const char* kind : {"descriptor", "factory"}) {
    SCOPED_TRACE(kind);
    const std::string name = std::string("unique_") + kind;
    const PluginLibrary one = broker.load(test_plugin(name + "_one"));
    EXPECT_EQ(id_of(one), std::string("com.example.test.") + kind + "_one");
    EXPECT_THAT(error_text(ErrorKind::plugin_entry,
                           [&] { return broker.load(test_plugin(name + "_two")); }),
                AllOf(HasSubstr(name + "_two.so"), HasSubstr(kind), HasSubstr("lies in \""),
                      HasSubstr(name + "_one.so\""), HasSubstr("hidden visibility"),
                      HasSubstr("in a worker")));
    // The control: without the broker, the second says that it is the first.
    const ctxb_plugin_descriptor* const said = described_by(name + "_two");
    ASSERT_NE(said, nullptr);
    EXPECT_EQ(said->id, std::string("com.example.test.") + kind + "_one");
  }
}

TEST_F(BrokerTest, TableOfADescriptorInAnotherLibraryIsRefusedWithThatLibrary) {
  const PluginLibrary one = broker.load(test_plugin("unique_table_one"));
  EXPECT_EQ(one.plugins().front().parameters.front().name, "table_one");
  EXPECT_THAT(error_text(ErrorKind::plugin_entry,
                         [&] { return broker.load(test_plugin("unique_table_two")); }),
              AllOf(HasSubstr("plug-in com.example.test.table_two: parameters lies in \""),
                    HasSubstr("unique_table_one.so\"")));
  const ctxb_plugin_descriptor* const said = described_by("unique_table_two");
  ASSERT_NE(said, nullptr);
  EXPECT_EQ(said->parameters[0].name, std::string("table_one")) << "the control";
}

// The loader finds the entry of a library that this one needs.
TEST_F(BrokerTest, EntryOfANeededLibraryIsNotTheLibrarysOwn) {
  EXPECT_THAT(error_text(ErrorKind::plugin_entry,
                         [&] { return broker.load(test_plugin("needs_a_plugin")); }),
              AllOf(HasSubstr("needs_a_plugin.so"), HasSubstr("is not a ctxbroker plug-in"),
                    HasSubstr("lies in \"")));
}

class SharedVariablesTest : public BrokerTest {
 protected:
  static int count_calls(const AdoptedLibrary& library) {
    return reinterpret_cast<int (*)()>(library.symbol("ctxb_test_count_calls"))();
  }
  auto says_nothing() { return ::testing::Value(said("plugin"), Each(Not(HasSubstr(" shares ")))); }
  Tenant first = broker.open_tenant("first"), second = broker.open_tenant("second");
};

TEST_F(SharedVariablesTest, AreNamedWhenTheSecondLibraryIsLoaded) {
  const AdoptedLibrary one = first.adopt(test_plugin("unique_variables_one"));
  EXPECT_TRUE(says_nothing());
  const AdoptedLibrary two = second.adopt(test_plugin("unique_variables_two"));
  EXPECT_THAT(said("plugin"),
              Contains(AllOf(HasSubstr("unique_variables_two.so shares "),
                             HasSubstr("header::Settings<int>::level and 2 more with \""),
                             HasSubstr("unique_variables_one.so\""), HasSubstr("in a worker"))));
  EXPECT_EQ(count_calls(one), 1);
  EXPECT_EQ(count_calls(two), 2) << "they do share it";
}

TEST_F(SharedVariablesTest, LibrariesOfOneTenantAreMeantToShareThem) {
  const AdoptedLibrary one = first.adopt(test_plugin("unique_variables_one"));
  const AdoptedLibrary two = first.adopt(test_plugin("unique_variables_two"));
  EXPECT_TRUE(says_nothing());
}

TEST_F(SharedVariablesTest, LibrariesThatHideThemShareNothing) {
  const AdoptedLibrary one = first.adopt(test_plugin("hidden_variables_one"));
  const AdoptedLibrary two = second.adopt(test_plugin("hidden_variables_two"));
  EXPECT_TRUE(says_nothing());
  EXPECT_EQ(count_calls(one), 1);
  EXPECT_EQ(count_calls(two), 1);
}

}  // namespace
}  // namespace ctxbroker
