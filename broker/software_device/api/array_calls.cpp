// SPDX-License-Identifier: Apache-2.0
// cuArray*. Present versions only: the first ones are of 32-bit sizes.
#include "api/array.hpp"
#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

void create(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR& description) {
  Context& context = working_owner();
  refuse_unsafe();
  *array = Process::instance().arrays.insert(std::make_shared<Array>(context, description),
                                             [&] { context.check_alive(); });
}

}  // namespace

CTXB_EXPORT CUresult cuArrayCreate_v2(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* description) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    working_context();
    check_value(array != nullptr && description != nullptr);
    create(array, {description->Width, description->Height, 0, description->Format,
                   description->NumChannels, 0});
  });
}

CTXB_EXPORT CUresult cuArray3DCreate_v2(CUarray* array,
                                        const CUDA_ARRAY3D_DESCRIPTOR* description) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    working_context();
    check_value(array != nullptr && description != nullptr);
    create(array, *description);
  });
}

// Waits for the work of its context, as cuMemFree does.
CTXB_EXPORT CUresult cuArrayDestroy(CUarray array) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Array> found = find_array(array);
    refuse_unsafe();
    Executor& executor = found->context.device.executor;
    executor.wait(executor.pending_of_family(&found->context));
    Process::instance().arrays.take(array);
  });
}

CTXB_EXPORT CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* description, CUarray array) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Array> found = find_array(array);
    check_value(description != nullptr);
    const CUDA_ARRAY3D_DESCRIPTOR& all = found->description;
    *description = {all.Width, all.Height, all.Format, all.NumChannels};
  });
}

CTXB_EXPORT CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* description,
                                               CUarray array) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Array> found = find_array(array);
    check_value(description != nullptr);
    *description = found->description;
  });
}
