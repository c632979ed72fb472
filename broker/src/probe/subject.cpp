// SPDX-License-Identifier: Apache-2.0
#include "probe/subject.hpp"

#include "driver/driver_error.hpp"

namespace ctxbroker::detail {
namespace {

// The probes' kernels, as PTX for any device since compute capability 7.0. hold(flag) runs until
// the word at `flag` is not 0, add_one(address) adds one to a word, and stop() traps.
constexpr const char* probe_kernels = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .entry hold(.param .u64 flag)
{
  .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [flag];
  cvta.to.global.u64 %rd2, %rd1;
AGAIN:
  ld.volatile.global.u32 %r1, [%rd2];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra AGAIN;
  ret;
}

.visible .entry add_one(.param .u64 address)
{
  .reg .b32 %r<3>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [address];
  cvta.to.global.u64 %rd2, %rd1;
  ld.global.u32 %r1, [%rd2];
  add.s32 %r2, %r1, 1;
  st.global.u32 [%rd2], %r2;
  ret;
}

.visible .entry stop()
{
  trap;
  ret;
}
)";

}  // namespace

Subject::Subject(const Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= driver.handles.size()) {
    throw Error(ErrorKind::no_device, "there is no device " + std::to_string(ordinal));
  }
  device_ = driver.handles[static_cast<std::size_t>(ordinal)];
  check_call(table().primary_retain(&primary_, device_), "cuDevicePrimaryCtxRetain");
  push(primary_);
}

void Subject::check_call(CUresult status, const char* call) const {
  check(driver_.table, status, call, {.device = ordinal_},
        [&] { return std::string(call) + " failed"; });
}

void Subject::refuse_missing(const char* call) const {
  throw driver_error(driver_.table, CUDA_ERROR_NOT_SUPPORTED, call, std::string(call) + " failed",
                     {.device = ordinal_});
}

CUcontext Subject::private_context() const {
  CUcontext made = nullptr;
  check_call(table().ctx_create(&made, 0, device_), "cuCtxCreate_v2");
  pop();
  return made;
}

std::vector<CUdevResource> Subject::split(unsigned int least) const {
  check_entry(table().device_get_resource != nullptr && table().split_multiprocessors != nullptr,
              "cuDevSmResourceSplitByCount");
  CUdevResource whole = {};
  check_call(table().device_get_resource(device_, &whole, CU_DEV_RESOURCE_TYPE_SM),
             "cuDeviceGetDevResource");
  unsigned int count = 0;
  check_call(table().split_multiprocessors(nullptr, &count, &whole, nullptr, 0, least),
             "cuDevSmResourceSplitByCount");
  std::vector<CUdevResource> groups(count);
  if (count != 0) {
    check_call(table().split_multiprocessors(groups.data(), &count, &whole, nullptr, 0, least),
               "cuDevSmResourceSplitByCount");
  }
  groups.resize(count);
  return groups;
}

std::vector<CUdevResource> Subject::smallest_groups(std::size_t least) const {
  std::vector<CUdevResource> groups = split(1);
  check_entry(groups.size() >= least, "cuDevSmResourceSplitByCount");
  return groups;
}

CUcontext Subject::green(CUdevResource resource) const {
  check_entry(table().describe_resources != nullptr && table().green_create != nullptr &&
                  table().green_context != nullptr,
              "cuGreenCtxCreate");
  CUdevResourceDesc description = nullptr;
  CUgreenCtx made = nullptr;
  CUcontext context = nullptr;
  check_call(table().describe_resources(&description, &resource, 1), "cuDevResourceGenerateDesc");
  check_call(table().green_create(&made, description, device_, CU_GREEN_CTX_DEFAULT_STREAM),
             "cuGreenCtxCreate");
  check_call(table().green_context(&context, made), "cuCtxFromGreenCtx");
  return context;
}

CUfunction Subject::kernel(const char* name) const {
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  check_call(table().module_load_data_ex(&module, probe_kernels, 0, nullptr, nullptr),
             "cuModuleLoadDataEx");
  check_call(table().module_get_function(&function, module, name), "cuModuleGetFunction");
  return function;
}

CUdeviceptr Subject::memory(std::size_t bytes) const {
  CUdeviceptr address = 0;
  check_call(table().mem_alloc(&address, bytes), "cuMemAlloc_v2");
  return address;
}

CUresult Subject::launch(CUfunction kernel, CUstream stream, CUdeviceptr argument) const {
  void* arguments[] = {&argument};
  return table().launch_kernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
}

void Subject::set_word(CUdeviceptr address, unsigned int value) const {
  check_call(table().memset_d32_async(address, value, 1, nullptr), "cuMemsetD32Async");
  check_call(table().ctx_synchronize(), "cuCtxSynchronize");
}

CUresult Subject::read_word(CUdeviceptr address, unsigned int* value) const {
  const CUresult status = table().memcpy_dtoh_async(value, address, sizeof *value, nullptr);
  return status != CUDA_SUCCESS ? status : table().ctx_synchronize();
}

CUstream Subject::stream() const {
  CUstream made = nullptr;
  check_call(table().stream_create(&made, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return made;
}

void Subject::push(CUcontext context) const {
  check_call(table().ctx_push(context), "cuCtxPushCurrent_v2");
}

void Subject::pop() const {
  CUcontext popped = nullptr;
  check_call(table().ctx_pop(&popped), "cuCtxPopCurrent_v2");
}

Inside::~Inside() {
  CUcontext popped = nullptr;
  subject_.table().ctx_pop(&popped);
}

}  // namespace ctxbroker::detail
