// SPDX-License-Identifier: Apache-2.0
// cuStreamBeginCapture and its relatives.
#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

bool is_mode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

// Calls `body` with the stream of a handle.
template <class Body>
CUresult with(CUstream stream, Body body) {
  return initialised([&] {
    std::shared_ptr<Stream> found = find_stream(stream);
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    return body(found);
  });
}

CUresult begin(CUstream stream, CUstreamCaptureMode mode) {
  return with(stream, [&](const auto& found) {
    check_value(is_mode(mode));
    begin_capture(found, mode);
    return CUDA_SUCCESS;
  });
}

CUresult end(CUstream stream, CUgraph* graph) {
  return with(stream, [&](const auto& found) {
    check_value(graph != nullptr);
    return end_capture(found, graph);
  });
}

CUresult is_capturing(CUstream stream, CUstreamCaptureStatus* status) {
  return with(stream, [&](const auto& found) {
    check_value(status != nullptr);
    *status = capture_info(*found).status;
    return CUDA_SUCCESS;
  });
}

struct InfoTargets {
  CUstreamCaptureStatus* status = nullptr;
  cuuint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** dependencies = nullptr;
  const CUgraphEdgeData** edges = nullptr;
  std::size_t* count = nullptr;
};

CUresult get_info(CUstream stream, const InfoTargets& to) {
  return with(stream, [&](const auto& found) {
    check_value(to.status != nullptr && (to.edges == nullptr || to.dependencies != nullptr));
    CaptureInfo info = capture_info(*found);
    *to.status = info.status;
    if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (to.id != nullptr) *to.id = info.id;
    if (to.graph != nullptr) *to.graph = info.graph;
    if (to.dependencies != nullptr) *to.dependencies = info.dependencies;
    if (to.edges != nullptr) *to.edges = nullptr;  // no edge here says more than that it is one
    if (to.count != nullptr) *to.count = info.dependency_count;
    return CUDA_SUCCESS;
  });
}

CUresult update_dependencies(CUstream stream, const CUgraphNode* nodes,
                             const CUgraphEdgeData* edges, std::size_t count, unsigned flags) {
  return with(stream, [&](const auto& found) {
    check_value(flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES ||
                flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    check_value(count == 0 || nodes != nullptr);
    check_that(edges == nullptr, CUDA_ERROR_NOT_SUPPORTED);
    GraphNodes all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(find_node(nodes[i]));
    update_capture_dependencies(*found, all, flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    return CUDA_SUCCESS;
  });
}

}  // namespace

CTXB_EXPORT_PTSZ(cuStreamBeginCapture, (CUstream stream),
                 begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL))
CTXB_EXPORT_PTSZ(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode),
                 begin(stream, mode))

CTXB_EXPORT_PTSZ(cuStreamEndCapture, (CUstream stream, CUgraph* graph), end(stream, graph))

CTXB_EXPORT_PTSZ(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus* status),
                 is_capturing(stream, status))

CTXB_EXPORT_PTSZ(cuStreamGetCaptureInfo,
                 (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id),
                 get_info(stream, {.status = status, .id = id}))
CTXB_EXPORT_PTSZ(cuStreamGetCaptureInfo_v2,
                 (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                  const CUgraphNode** dependencies, std::size_t* count),
                 get_info(stream, {status, id, graph, dependencies, nullptr, count}))
CTXB_EXPORT_PTSZ(cuStreamGetCaptureInfo_v3,
                 (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                  const CUgraphNode** dependencies, const CUgraphEdgeData** edges,
                  std::size_t* count),
                 get_info(stream, {status, id, graph, dependencies, edges, count}))

CTXB_EXPORT_PTSZ(cuStreamUpdateCaptureDependencies,
                 (CUstream stream, CUgraphNode* nodes, std::size_t count, unsigned int flags),
                 update_dependencies(stream, nodes, nullptr, count, flags))
CTXB_EXPORT_PTSZ(cuStreamUpdateCaptureDependencies_v2,
                 (CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData* edges,
                  std::size_t count, unsigned int flags),
                 update_dependencies(stream, nodes, edges, count, flags))

CTXB_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(mode != nullptr && is_mode(*mode));
    *mode = exchange_capture_mode(*mode);
  });
}
