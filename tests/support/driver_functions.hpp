// SPDX-License-Identifier: Apache-2.0
// A driver's functions, each called by its own name and with its own type.
#pragma once

// NVIDIA's switch that declares every version of every function under its own name.
#define __CUDA_API_VERSION_INTERNAL  // NOLINT(bugprone-reserved-identifier)
#include <cuda.h>

// Declared in cudaProfiler.h, which not every installation has.
extern "C" CUresult cuProfilerStart();
extern "C" CUresult cuProfilerStop();

namespace ctxbroker {

// clang-format off
#if CUDA_VERSION >= 12050
#define CTXB_DRIVER_CALLS_12050(X) \
  X(cuCtxCreate_v4) X(cuCtxRecordEvent) X(cuCtxWaitEvent) X(cuGreenCtxStreamCreate) \
  X(cuStreamGetCtx_v2) X(cuKernelGetLibrary)
#else
#define CTXB_DRIVER_CALLS_12050(X)
#endif
#if CUDA_VERSION >= 12090
#define CTXB_DRIVER_CALLS_12090(X) X(cuGreenCtxGetId)
#else
#define CTXB_DRIVER_CALLS_12090(X)
#endif
#if CUDA_VERSION >= 13000
#define CTXB_DRIVER_CALLS_13000(X) \
  X(cuMemGetDefaultMemPool) X(cuMemGetMemPool) X(cuMemSetMemPool) X(cuMemPrefetchBatchAsync) \
  X(cuMemDiscardBatchAsync) X(cuMemDiscardAndPrefetchBatchAsync)
#else
#define CTXB_DRIVER_CALLS_13000(X)
#endif
#define CTXB_DRIVER_CALLS(X) \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuGetProcAddress) \
  X(cuGetProcAddress_v2) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) \
  X(cuDeviceGetUuid_v2) X(cuDeviceTotalMem_v2) X(cuDeviceGetAttribute) \
  X(cuDeviceComputeCapability) X(cuDeviceGetPCIBusId) X(cuDeviceGetByPCIBusId) \
  X(cuDeviceCanAccessPeer) X(cuDeviceGetP2PAttribute) X(cuCtxEnablePeerAccess) \
  X(cuCtxDisablePeerAccess) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) \
  X(cuDevicePrimaryCtxRelease_v2) X(cuDevicePrimaryCtxReset) X(cuDevicePrimaryCtxReset_v2) \
  X(cuDevicePrimaryCtxSetFlags) X(cuDevicePrimaryCtxSetFlags_v2) X(cuDevicePrimaryCtxGetState) \
  X(cuCtxCreate_v2) X(cuCtxCreate_v3) X(cuCtxDestroy_v2) X(cuCtxAttach) X(cuCtxDetach) \
  X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxSetCurrent) X(cuCtxGetCurrent) \
  X(cuFuncSetBlockShape) X(cuFuncSetSharedSize) X(cuParamSetSize) X(cuParamSeti) X(cuParamSetv) \
  X(cuLaunchGrid) X(cuLaunchGridAsync) \
  X(cuCtxGetDevice) X(cuCtxGetFlags) X(cuCtxSetFlags) X(cuCtxGetId) X(cuCtxGetApiVersion) \
  X(cuCtxGetLimit) \
  X(cuCtxSetLimit) X(cuCtxGetCacheConfig) X(cuCtxSetCacheConfig) X(cuCtxGetStreamPriorityRange) \
  X(cuCtxSynchronize) X(cuMemAlloc_v2) X(cuMemAllocPitch_v2) X(cuMemFree_v2) X(cuMemGetInfo_v2) \
  X(cuMemGetAddressRange_v2) X(cuMemAllocHost_v2) X(cuMemHostAlloc) X(cuMemFreeHost) \
  X(cuMemHostGetDevicePointer_v2) X(cuMemHostGetFlags) X(cuMemHostRegister_v2) \
  X(cuMemHostUnregister) X(cuPointerGetAttribute) X(cuPointerGetAttributes) X(cuMemcpy) \
  X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyDtoD_v2) X(cuMemcpyPeer) X(cuMemcpy2D_v2) \
  X(cuMemcpy2DUnaligned_v2) X(cuMemcpyAsync) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) \
  X(cuMemcpyDtoDAsync_v2) X(cuMemcpyPeerAsync) X(cuMemcpy2DAsync_v2) X(cuMemcpyHtoD_v2_ptds) \
  X(cuMemcpyDtoH_v2_ptds) X(cuMemsetD8_v2) X(cuMemsetD16_v2) X(cuMemsetD32_v2) \
  X(cuMemsetD2D8_v2) X(cuMemsetD2D16_v2) X(cuMemsetD2D32_v2) X(cuMemsetD8Async) \
  X(cuMemsetD32Async) X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy_v2) \
  X(cuStreamQuery) X(cuStreamQuery_ptsz) X(cuStreamSynchronize) X(cuStreamSynchronize_ptsz) \
  X(cuStreamWaitEvent) X(cuStreamGetFlags) X(cuStreamGetPriority) X(cuStreamGetCtx) \
  X(cuStreamGetId) X(cuStreamGetId_ptsz) X(cuStreamAddCallback) X(cuLaunchHostFunc) \
  X(cuStreamIsCapturing) X(cuThreadExchangeStreamCaptureMode) X(cuEventCreate) \
  X(cuEventDestroy_v2) X(cuEventRecord) X(cuEventRecord_ptsz) X(cuEventQuery) \
  X(cuEventSynchronize) X(cuEventElapsedTime) X(cuModuleLoad) X(cuModuleLoadData) \
  X(cuModuleLoadDataEx) X(cuModuleLoadFatBinary) X(cuModuleUnload) X(cuModuleGetFunction) \
  X(cuModuleGetGlobal_v2) X(cuModuleGetFunctionCount) X(cuModuleEnumerateFunctions) \
  X(cuFuncGetAttribute) X(cuFuncSetAttribute) X(cuFuncSetCacheConfig) X(cuFuncGetModule) \
  X(cuFuncGetName) X(cuFuncGetParamInfo) X(cuLaunchKernel) X(cuLaunchKernel_ptsz) \
  X(cuLaunchKernelEx) X(cuLaunchCooperativeKernel) X(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  X(cuOccupancyMaxPotentialBlockSize) X(cuDeviceGetDevResource) X(cuDevSmResourceSplitByCount) \
  X(cuDevResourceGenerateDesc) X(cuGreenCtxCreate) X(cuGreenCtxDestroy) X(cuCtxFromGreenCtx) \
  X(cuGreenCtxGetDevResource) X(cuCtxGetDevResource) X(cuGreenCtxRecordEvent) \
  X(cuGreenCtxWaitEvent) X(cuStreamGetGreenCtx) X(cuMemAllocAsync) X(cuMemFreeAsync) \
  X(cuMemGetAllocationGranularity) X(cuMemCreate) X(cuMemRelease) X(cuMemAddressReserve) \
  X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) \
  X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle) X(cuMemGetAccess) \
  X(cuMemRetainAllocationHandle) X(cuMemGetAllocationPropertiesFromHandle) \
  X(cuMemAllocFromPoolAsync) X(cuMemPoolCreate) X(cuMemPoolDestroy) X(cuMemPoolSetAttribute) \
  X(cuMemPoolGetAttribute) X(cuMemPoolTrimTo) X(cuMemPoolSetAccess) X(cuMemPoolGetAccess) \
  X(cuDeviceGetMemPool) X(cuDeviceSetMemPool) X(cuDeviceGetDefaultMemPool) X(cuMemAllocManaged) \
  X(cuArrayCreate_v2) X(cuArray3DCreate_v2) X(cuArrayDestroy) X(cuArrayGetDescriptor_v2) \
  X(cuArray3DGetDescriptor_v2) X(cuMemcpy3D_v2) X(cuMemcpy3DAsync_v2) X(cuMemcpyHtoA_v2) \
  X(cuMemcpyAtoH_v2) X(cuMemcpyAtoD_v2) X(cuMemcpyDtoA_v2) X(cuMemcpyAtoA_v2) \
  X(cuCtxGetSharedMemConfig) X(cuCtxSetSharedMemConfig) X(cuCtxResetPersistingL2Cache) \
  X(cuProfilerStart) X(cuProfilerStop) X(cuLibraryLoadData) X(cuLibraryLoadFromFile) \
  X(cuLibraryUnload) X(cuLibraryGetKernel) X(cuLibraryGetKernelCount) \
  X(cuLibraryEnumerateKernels) X(cuLibraryGetModule) X(cuLibraryGetGlobal) \
  X(cuLibraryGetManaged) X(cuLibraryGetUnifiedFunction) X(cuKernelGetFunction) \
  X(cuKernelGetAttribute) X(cuKernelSetAttribute) X(cuKernelSetCacheConfig) X(cuKernelGetName) \
  X(cuKernelGetParamInfo) X(cuUserObjectCreate) X(cuUserObjectRetain) X(cuUserObjectRelease) \
  X(cuGraphRetainUserObject) X(cuGraphReleaseUserObject) X(cuStreamBeginCapture_v2) \
  X(cuStreamEndCapture) X(cuStreamGetCaptureInfo_v2) X(cuGraphCreate) X(cuGraphDestroy) \
  X(cuGraphAddKernelNode_v2) X(cuGraphAddMemcpyNode) X(cuGraphAddMemsetNode) \
  X(cuGraphAddHostNode) X(cuGraphAddEmptyNode) X(cuGraphAddMemAllocNode) \
  X(cuGraphAddMemFreeNode) X(cuGraphMemAllocNodeGetParams) X(cuGraphMemFreeNodeGetParams) X(cuGraphAddEventRecordNode) \
  X(cuGraphAddEventWaitNode) X(cuGraphAddDependencies) X(cuGraphGetNodes) \
  X(cuGraphGetRootNodes) X(cuGraphNodeGetType) X(cuGraphNodeGetDependencies) \
  X(cuGraphDestroyNode) X(cuGraphClone) X(cuGraphInstantiateWithFlags) \
  X(cuGraphInstantiateWithParams) X(cuGraphLaunch) X(cuGraphUpload) X(cuGraphExecDestroy) \
  X(cuGraphExecKernelNodeSetParams_v2) X(cuGraphKernelNodeGetParams_v2) \
  X(cuGraphKernelNodeSetParams_v2) X(cuDeviceGraphMemTrim) X(cuDeviceGetGraphMemAttribute) \
  X(cuDeviceSetGraphMemAttribute) X(cuGraphExecUpdate_v2) \
  X(cuOccupancyAvailableDynamicSMemPerBlock) X(cuMemAdvise) X(cuMemAdvise_v2) \
  X(cuMemPrefetchAsync) X(cuMemPrefetchAsync_v2) X(cuMemRangeGetAttribute) \
  X(cuMemRangeGetAttributes) X(cuPointerSetAttribute) X(cuIpcGetMemHandle) \
  X(cuIpcOpenMemHandle_v2) X(cuIpcCloseMemHandle) X(cuIpcGetEventHandle) X(cuIpcOpenEventHandle) \
  X(cuDeviceGetLuid) X(cuDeviceGetUuid) X(cuGraphAddNode) X(cuGraphAddNode_v2) \
  X(cuGraphConditionalHandleCreate) X(cuFuncLoad) X(cuLinkCreate_v2) X(cuLinkAddData_v2) \
  X(cuLinkAddFile_v2) X(cuLinkComplete) X(cuLinkDestroy) \
  CTXB_DRIVER_CALLS_12050(X) CTXB_DRIVER_CALLS_12090(X) CTXB_DRIVER_CALLS_13000(X)
// clang-format on

// Null where the driver has no such function.
struct DriverFunctions {
  DriverFunctions() = default;
  explicit DriverFunctions(void* library);  // as dlopen gave it

// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define CTXB_MEMBER(name) decltype(&::name) name = nullptr;
  CTXB_DRIVER_CALLS(CTXB_MEMBER)
#undef CTXB_MEMBER
};

}  // namespace ctxbroker
