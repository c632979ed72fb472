// SPDX-License-Identifier: Apache-2.0
// The gate before a driver of another CUDA version than its own. The software device and NVIDIA's
// driver of CUDA 13.0 are older than the gate. gate_contract_test_on_a_newer_driver runs this on
// one that is newer (fixtures/newer_driver).
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "gate_fixture.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* new_name = "cuNewerThanTheGate";

class OtherDriverTest : public GateTest {
 protected:
  void* drivers_own(const char* name) {
    return dlsym(dlopen(broker.driver().path.c_str(), RTLD_NOW | RTLD_NOLOAD), name);
  }
  // The records that tell of a look-up of that name.
  std::vector<std::string> records_of(const std::string& name) {
    std::vector<std::string> all;
    for (std::string& one : said()) {
      if (one.find(name + ": looked up") != std::string::npos) all.push_back(std::move(one));
    }
    return all;
  }
  std::uint64_t look_ups(const std::string& name) {
    for (const UnknownFunction& one : broker.gate().unknown_functions) {
      if (one.name == name) return one.look_ups;
    }
    return 0;
  }
  bool is_named(const std::string& name) {
    const auto unknown = broker.gate().unknown_functions;
    return std::any_of(unknown.begin(), unknown.end(),
                       [&](const auto& one) { return one.name == name; });
  }
  std::string why_not_loaded(const char* library) {
    try {
      Tenant tenant = broker.open_tenant(library);
      tenant.adopt(test_library(library));
      return "it was loaded";
    } catch (const Error& error) {
      return error.what();
    }
  }
};

class NewerDriverTest : public OtherDriverTest {
 protected:
  void SetUp() override {
    if (broker.driver().version <= broker.gate().cuda_version) {
      GTEST_SKIP() << "the driver is not newer than the gate";
    }
  }
  using ByName = void*(const char*);
  using ByDriver = void*(const char*, int);

  Tenant tenant = broker.open_tenant("newer");
  AdoptedLibrary library = tenant.adopt(test_library("newer_looks_up"));
  void* by_handle(const char* name) {
    return tenant.run(0, [&] { return symbol<ByName>(library, "look_up_by_handle")(name); });
  }
  void* by_default(const char* name) {
    return tenant.run(0, [&] { return symbol<ByName>(library, "look_up_by_default")(name); });
  }
  void* by_driver(const char* name, int version) {
    return tenant.run(
        0, [&] { return symbol<ByDriver>(library, "look_up_by_driver")(name, version); });
  }
};

TEST_F(NewerDriverTest, NewerFormOfAKnownNameIsTheDriversOwn) {
  const int newest = broker.driver().version;
  void* const found = by_driver("cuEventCreate", newest);
  EXPECT_EQ(found, drivers_own("cuEventCreate_v2"));
  EXPECT_EQ(by_driver("cuEventCreate", newest), found);
  EXPECT_EQ(by_driver("cuEventCreate", 13000), driver_function_by_name("cuEventCreate"));
  EXPECT_THAT(records_of("cuEventCreate"), SizeIs(1));
  EXPECT_EQ(look_ups("cuEventCreate"), 2U);
  tenant.run(0, [&] {
    CUevent event = nullptr;
    const int extra = 0;
    EXPECT_EQ(call_found(found, "cuEventCreate", &event, 0U, static_cast<const void*>(nullptr)),
              CUDA_ERROR_INVALID_VALUE)
        << "the new parameter reaches the driver";
    EXPECT_EQ(call_found(found, "cuEventCreate", &event, 0U, static_cast<const void*>(&extra)),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuEventDestroy_v2", event), CUDA_ERROR_INVALID_HANDLE)
        << "the gate has not seen that it was made";
  });
}

TEST_F(NewerDriverTest, UnknownNameIsTheDriversOwnInEachLookUp) {
  const auto before = look_ups(new_name);
  void* const own = drivers_own(new_name);
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(by_handle(new_name), own);
  EXPECT_EQ(by_driver(new_name, broker.driver().version), own);
  EXPECT_EQ(look_ups(new_name), before + 2);
  // The library needs the driver, and so sees what that has.
  EXPECT_EQ(by_default(new_name), own);
  EXPECT_EQ(look_ups(new_name), before + 3);
  EXPECT_THAT(records_of(new_name), SizeIs(1));
  int value = 0;
  EXPECT_EQ(call_found(own, new_name, &value), CUDA_SUCCESS);
  EXPECT_EQ(value, broker.driver().version);
}

TEST_F(NewerDriverTest, NameThatNobodyHasIsNotFoundAndNotRecorded) {
  for (const char* name : {"cuOfNoDriver", "cuNewerThanTheGate_v2"}) {
    EXPECT_EQ(by_handle(name), nullptr) << name;
    EXPECT_EQ(by_default(name), nullptr) << name;
    EXPECT_EQ(by_driver(name, broker.driver().version), nullptr) << name;
    EXPECT_FALSE(is_named(name)) << name;
    EXPECT_THAT(records_of(name), IsEmpty()) << name;
  }
}

TEST_F(NewerDriverTest, EachTenantThatLooksUpIsNamed) {
  by_driver(new_name, broker.driver().version);
  Tenant second = broker.open_tenant("second");
  second.run(0, [&] {
    void* found = nullptr;
    CUdriverProcAddressQueryResult result{};
    driver_call("cuGetProcAddress_v2", new_name, &found, broker.driver().version, cuuint64_t{0},
                &result);
  });
  EXPECT_THAT(records_of(new_name), SizeIs(2));
}

TEST_F(NewerDriverTest, GateNamesWhatItDoesNotKnow) {
  EXPECT_TRUE(is_named(new_name));
  EXPECT_TRUE(is_named("cuEventCreate_v2"));
  EXPECT_FALSE(is_named("cuEventCreate_v3"));
  EXPECT_FALSE(is_named("cuInit"));
}

TEST_F(NewerDriverTest, LibraryThatLinksAnUnknownNameIsRefusedWithTheReason) {
  EXPECT_THAT(why_not_loaded("newer_linked"),
              AllOf(HasSubstr("undefined symbol: cuNewerThanTheGate"),
                    HasSubstr("is newer than this gate, which knows the functions of CUDA "),
                    HasSubstr("only look-ups can be passed on")));
}

// The newer forms that the table knows follow the rules of the older ones.
TEST_F(NewerDriverTest, KnownFormIsGuarded) {
  for (const char* name : {"cuGraphAddNode_v3", "cuLaunchHostFunc_v2", "cuMulticastBindMem_v2"}) {
    EXPECT_EQ(by_handle(name), driver_function_by_name(name)) << name;
    EXPECT_NE(by_handle(name), drivers_own(name)) << name;
  }
  Tenant other = broker.open_tenant("other");
  CUgraph graph = nullptr;
  other.run(0, [&] { check_driver_call("cuGraphCreate", &graph, 0U); });
  tenant.run(0, [&] {
    CUgraphNode node = nullptr;
    CUgraphNodeParams parameters{};
    parameters.type = CU_GRAPH_NODE_TYPE_EMPTY;
    const void* none = nullptr;
    EXPECT_EQ(
        driver_call("cuGraphAddNode_v3", &node, graph, none, none, std::size_t{0}, &parameters),
        CUDA_ERROR_INVALID_VALUE);
  });
  EXPECT_EQ(tenant.strikes(), 1U);
}

class OlderDriverTest : public OtherDriverTest {
 protected:
  void SetUp() override {
    if (broker.driver().version >= 13010) GTEST_SKIP() << "the driver has cuGraphGetId";
  }
};

// The driver alone does the same.
TEST_F(OlderDriverTest, FunctionThatTheDriverLacksIsNotThere) {
  ASSERT_EQ(drivers_own("cuGraphGetId"), nullptr);
  void* const gate = dlopen("libcuda.so.1", RTLD_NOW);
  EXPECT_THAT(file_of(dlsym(gate, "cuInit")), HasSubstr("ctxbroker_gate.so"));
  EXPECT_EQ(dlsym(gate, "cuGraphGetId"), nullptr);
  EXPECT_NE(dlsym(gate, "cuGraphCreate"), nullptr);
  void* found = nullptr;
  CUdriverProcAddressQueryResult result{};
  const CUresult status = driver_call("cuGetProcAddress_v2", "cuGraphGetId", &found,
                                      broker.driver().version, cuuint64_t{0}, &result);
  EXPECT_TRUE(status != CUDA_SUCCESS || found == nullptr);
}

TEST_F(OlderDriverTest, LibraryThatLinksAFunctionTheDriverLacksIsRefusedWithTheReason) {
  EXPECT_THAT(why_not_loaded("later_linked"),
              AllOf(HasSubstr("undefined symbol: cuGraphGetId"),
                    HasSubstr("is too old for this library: cuGraphGetId came with CUDA 13.1")));
}

TEST_F(OlderDriverTest, GateKnowsAllThatTheDriverHas) {
  // NVIDIA's driver exports a few names that no header has, such as cuEGLApiInit.
  if (driver_is_software()) {
    EXPECT_THAT(broker.gate().unknown_functions, IsEmpty());
  } else {
    EXPECT_LE(broker.gate().unknown_functions.size(), 8U);
  }
  EXPECT_GE(broker.gate().cuda_version, 13050);
}

}  // namespace
}  // namespace ctxbroker
