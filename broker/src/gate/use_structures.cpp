// SPDX-License-Identifier: Apache-2.0
#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

template <typename Given>
CUresult check_pointed(const Caller& caller, const char* function, Word address) noexcept {
  const auto* const given = reinterpret_cast<const Given*>(address);
  return given == nullptr ? CUDA_SUCCESS : check_inside(caller, function, *given);
}

}  // namespace

CUresult check_inside(const Caller& caller, const char* function,
                      const CUDA_MEMCPY3D& copy) noexcept {
  const auto check = [&](CUmemorytype type, CUarray array) {
    return type != CU_MEMORYTYPE_ARRAY
               ? CUDA_SUCCESS
               : check_use(caller, function, Kind::array, handle_value(array), lent);
  };
  const CUresult status = check(copy.srcMemoryType, copy.srcArray);
  return status != CUDA_SUCCESS ? status : check(copy.dstMemoryType, copy.dstArray);
}

CUresult check_inside(const Caller& caller, const char* function,
                      const CUDA_RESOURCE_DESC& resource) noexcept {
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return check_use(caller, function, Kind::array, handle_value(resource.res.array.hArray),
                       lent);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return check_use(caller, function, Kind::mipmapped_array,
                       handle_value(resource.res.mipmap.hMipmappedArray), lent);
    default:
      return CUDA_SUCCESS;
  }
}

CUresult check_inside(const Caller& caller, const char* function,
                      const CUDA_GRAPH_INSTANTIATE_PARAMS& parameters) noexcept {
  if ((parameters.flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0) return CUDA_SUCCESS;
  return check_use(caller, function, Kind::stream, handle_value(parameters.hUploadStream));
}

CUresult check_semaphores(const Caller& caller, const char* function,
                          const CUexternalSemaphore* semaphores, unsigned count) noexcept {
  CUresult status = CUDA_SUCCESS;
  for (unsigned i = 0; semaphores != nullptr && i < count && status == CUDA_SUCCESS; ++i) {
    status =
        check_use(caller, function, Kind::external_semaphore, handle_value(semaphores[i]), lent);
  }
  return status;
}

CUresult check_structure(const Caller& caller, const char* function, Structure structure,
                         Word address) noexcept {
  switch (structure) {
    case Structure::copy:
      return check_pointed<CUDA_MEMCPY3D>(caller, function, address);
    case Structure::resource:
      return check_pointed<CUDA_RESOURCE_DESC>(caller, function, address);
    case Structure::kernel:
      return check_pointed<CUDA_KERNEL_NODE_PARAMS_v2>(caller, function, address);
    case Structure::batch:
      return check_pointed<CUDA_BATCH_MEM_OP_NODE_PARAMS>(caller, function, address);
    case Structure::signals:
      return check_pointed<CUDA_EXT_SEM_SIGNAL_NODE_PARAMS>(caller, function, address);
    case Structure::waits:
      return check_pointed<CUDA_EXT_SEM_WAIT_NODE_PARAMS>(caller, function, address);
    case Structure::instantiate:
      return check_pointed<CUDA_GRAPH_INSTANTIATE_PARAMS>(caller, function, address);
    case Structure::none:
      break;
  }
  return CUDA_SUCCESS;
}

}  // namespace ctxbroker::detail
