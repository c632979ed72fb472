// SPDX-License-Identifier: Apache-2.0
// What the tests of driver behaviour that this project rests on share: green and private contexts
// that are cleaned up, and calls that may wait. docs/measurements/facts.md lists the tests.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {

// PTX beside kernels_ptx: record_multiprocessor(out): each block adds one to the counter of the
// multiprocessor it runs on; fail_assertion(): as a device assert() that does not hold.
extern const char* const facts_ptx;

struct Green {
  CUgreenCtx handle = nullptr;
  CUcontext context = nullptr;  // the same as a context that can be made current
};

// One split of a device's multiprocessors.
struct Split {
  std::vector<CUdevResource> groups;
  CUdevResource rest = {};
};

// One group after the other; no group is left out that the driver would give.
Split split_device(CUdevice device, unsigned multiprocessors_each);

CUdevResource all_multiprocessors(CUdevice device);

// `handle` is null when the driver refused, which is then a failure of the test.
Green make_green(CUdevice device, std::vector<CUdevResource> resources);
void destroy_green(const Green& green);

// The primary current, `kernels_ptx` and `facts_ptx` loaded in it. What tests make here is
// destroyed at their end, before the primary is reset.
class FactsTest : public KernelTest {
 protected:
  void SetUp() override;
  void TearDown() override;

  Green green(std::vector<CUdevResource> resources);
  Green green_over_all() { return green({all_multiprocessors(device)}); }
  CUcontext private_context();  // not current afterwards
  void gone(const Green& green);
  void gone(CUcontext context);

  CUfunction fact_function(const char* name) const;
  CUdeviceptr memory(std::size_t bytes, unsigned fill_with = 0) const;  // in the current context
  unsigned word_at(CUdeviceptr address) const;
  CUcontext current() const;
  CUresult allocate() const;  // and gives it back
  unsigned long long id_of(CUcontext context) const;
  bool primary_active() const;

  CUmodule facts_module = nullptr;

 private:
  std::vector<Green> greens_;
  std::vector<CUcontext> contexts_;
};

// Makes a context current for a scope.
class Current {
 public:
  explicit Current(CUcontext context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  CUcontext context_;
};

// One call on a thread of its own, with `context` current there.
class Call {
 public:
  Call(CUcontext context, std::function<CUresult()> call);
  bool returns_within(std::chrono::milliseconds patience) const;
  CUresult status();  // waits for it

 private:
  std::future<CUresult> result_;
};

// Long enough that a call which does not wait has returned on a busy machine; short enough to wait
// for one that should not return.
inline constexpr auto long_enough = std::chrono::seconds(20);
inline constexpr auto a_while = std::chrono::milliseconds(150);

// Runs `body` in a child process. It passes when the driver refused (body's status is an error) or
// crashed on the stale handle; a success would be a lie about a dead object.
void expect_refused_or_crashed(const std::function<CUresult()>& body);

#define CTXB_REQUIRE_NVIDIA(reason)                     \
  do {                                                  \
    if (driver().is_software) GTEST_SKIP() << (reason); \
  } while (false)

}  // namespace ctxbroker::test
