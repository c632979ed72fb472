// What the environment sets of the software device.
#include <cstdlib>
#include <string>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

int attribute(CUdevice_attribute which) {
  int value = 0;
  EXPECT_EQ(driver().cuDeviceGetAttribute(&value, which, 0), CUDA_SUCCESS);
  return value;
}

std::string device_name() {
  char name[64] = {};
  EXPECT_EQ(driver().cuDeviceGetName(name, sizeof name, 0), CUDA_SUCCESS);
  return name;
}

TEST(SoftwareSettings, NameCapabilityAndMultiprocessorsAreWhatTheEnvironmentSays) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    setenv("CTXBROKER_SOFTWARE_NAME", "a small one", 1);
    setenv("CTXBROKER_SOFTWARE_COMPUTE", "12.1", 1);
    setenv("CTXBROKER_SOFTWARE_MULTIPROCESSORS", "20", 1);
    const Driver& d = driver();
    ASSERT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(device_name(), "a small one");
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 12);
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 1);
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 20);
    CUdevResource all = {}, remaining = {};
    ASSERT_EQ(d.cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
    EXPECT_EQ(all.sm.smCount, 20U);
    CUdevResource group = {};
    unsigned int groups = 1;
    ASSERT_EQ(d.cuDevSmResourceSplitByCount(&group, &groups, &all, &remaining, 0, 8), CUDA_SUCCESS);
    EXPECT_EQ(group.sm.smCount, 8U);
    EXPECT_EQ(remaining.sm.smCount, 12U);
  });
}

TEST(SoftwareSettings, WhatCannotBeIsReportedAndNotUsed) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    setenv("CTXBROKER_SOFTWARE_COMPUTE", "6.1", 1);
    setenv("CTXBROKER_SOFTWARE_MULTIPROCESSORS", "many", 1);
    setenv("CTXBROKER_SOFTWARE_NAME", "", 1);
    ASSERT_EQ(driver().cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 7);
    EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 132);
    EXPECT_EQ(device_name(), "ctxbroker software device");
  });
}

}  // namespace
}  // namespace ctxbroker::test
