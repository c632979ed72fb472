// SPDX-License-Identifier: Apache-2.0
// Plug-ins that bring different versions of a library: a process keeps one for each SONAME.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include "broker_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

int version_used_by(const char* plugin) {
  void* const library = dlopen(test_plugin(plugin).c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return -1;
  const auto used = reinterpret_cast<int (*)()>(dlsym(library, "ctxb_test_version_used"));
  dlclose(library);
  return used();
}

TEST_F(BrokerTest, OtherVersionOfANeededLibraryIsNamedAtLoad) {
  const PluginLibrary one = broker.load(test_plugin("versions_one"));
  const PluginLibrary same = broker.load(test_plugin("versions_same"));
  EXPECT_THAT(said("plugin"), Not(Contains(HasSubstr("another version")))) << "it brings a copy";
  const PluginLibrary two = broker.load(test_plugin("versions_two"));
  EXPECT_THAT(said("plugin"),
              Contains(AllOf(HasSubstr("versions_two.so\" gets another version of "
                                       "libctxb_test_versioned.so.1 than its own"),
                             HasSubstr("version_2/libctxb_test_versioned.so.1\", but the process"),
                             HasSubstr("version_1/libctxb_test_versioned.so.1\" under that name"),
                             HasSubstr("versions_one.so\" needs"), HasSubstr("in a worker"))));
  EXPECT_EQ(version_used_by("versions_two"), 1) << "the control";
}

TEST_F(BrokerTest, OtherVersionOfANeededLibraryIsNamedWhereItFailsALoad) {
  const PluginLibrary one = broker.load(test_plugin("versions_one"));
  EXPECT_THAT(error_text(ErrorKind::plugin_load,
                         [&] { return broker.load(test_plugin("versions_newer")); }),
              AllOf(HasSubstr("undefined symbol: ctxb_test_newer"),
                    HasSubstr("gets another version of libctxb_test_versioned.so.1 than its own")));
}

TEST_F(BrokerTest, OtherVersionOfANeededLibraryIsNamedAtAdoption) {
  const PluginLibrary one = broker.load(test_plugin("versions_one"));
  Tenant tenant = broker.open_tenant("adopts another version");
  const AdoptedLibrary two = tenant.adopt(test_plugin("versions_two"));
  EXPECT_THAT(said("plugin"), Contains(HasSubstr("versions_two.so\" gets another version of")));
}

}  // namespace
}  // namespace ctxbroker
