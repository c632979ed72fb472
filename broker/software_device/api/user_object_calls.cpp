// SPDX-License-Identifier: Apache-2.0
// cuUserObject*, and what graphs hold of them.
#include <climits>

#include "api/entry.hpp"
#include "api/graph.hpp"
#include "api/user_object.hpp"

using namespace ctxbroker::software;

CTXB_EXPORT CUresult cuUserObjectCreate(CUuserObject* object, void* data, CUhostFn destroy,
                                        unsigned int references, unsigned int flags) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(object != nullptr && destroy != nullptr);
    check_value(references != 0 && references <= INT_MAX);
    check_value(flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    *object = Process::instance().user_objects.insert(
        std::make_shared<UserObject>(data, destroy, references), [] {});
  });
}

CTXB_EXPORT CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
  CTXB_COUNT_CALL();
  return initialised([&] { find_user_object(object)->retain(count); });
}

CTXB_EXPORT CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
  CTXB_COUNT_CALL();
  return initialised([&] { find_user_object(object)->release(count); });
}

CTXB_EXPORT CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                             unsigned int flags) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    std::shared_ptr<Graph> found = find_graph(graph);
    std::shared_ptr<UserObject> held = find_user_object(object);
    check_value(count != 0 && count <= INT_MAX);
    check_value((flags & ~unsigned(CU_GRAPH_USER_OBJECT_MOVE)) == 0);
    std::lock_guard lock(graphs_mutex());
    if ((flags & CU_GRAPH_USER_OBJECT_MOVE) == 0) held->retain(count);
    found->user_objects.take_over(held, count);
  });
}

CTXB_EXPORT CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object,
                                              unsigned int count) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    std::shared_ptr<Graph> found = find_graph(graph);
    std::shared_ptr<UserObject> held = find_user_object(object);
    std::lock_guard lock(graphs_mutex());
    found->user_objects.release(held, count);
  });
}
