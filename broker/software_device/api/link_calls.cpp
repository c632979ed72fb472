// SPDX-License-Identifier: Apache-2.0
// cuLink*.
#include <memory>
#include <string>
#include <vector>

#include "api/context.hpp"
#include "api/entry.hpp"
#include "api/link.hpp"
#include "api/load_program.hpp"

using namespace ctxbroker::software;

namespace {

std::shared_ptr<Link> find_link(CUlinkState handle) {
  return Process::instance().links.find(handle);
}

bool is_input_type(CUjitInputType type) {
  return type >= CU_JIT_INPUT_CUBIN && type < CU_JIT_NUM_INPUT_TYPES;
}

// Options of one input: checked. What they ask for, how to optimise, nothing here does.
struct InputOptions {
  unsigned count;
  CUjit_option* options;
  void** values;

  void check() const { JitOptions(count, options, values); }
};

}  // namespace

CTXB_EXPORT CUresult cuLinkCreate_v2(unsigned int count, CUjit_option* options, void** values,
                                     CUlinkState* state) {
  CTXB_COUNT_CALL();
  return working([&] {
    working_context();
    check_value(state != nullptr);
    auto link = std::make_shared<Link>(JitOptions(count, options, values));
    *state = Process::instance().links.insert(link, [] {});
  });
}

CTXB_EXPORT CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data,
                                      std::size_t bytes, const char* name, unsigned int count,
                                      CUjit_option* options, void** values) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Link> link = find_link(state);
    check_value(is_input_type(type) && data != nullptr && bytes != 0);
    InputOptions{count, options, values}.check();
    link->add(type, data, bytes, name == nullptr ? std::string() : name);
  });
}

CTXB_EXPORT CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path,
                                      unsigned int count, CUjit_option* options, void** values) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Link> link = find_link(state);
    check_value(is_input_type(type) && path != nullptr);
    InputOptions{count, options, values}.check();
    const std::string image = read_image_file(path);
    link->add(type, image.data(), image.size(), path);
  });
}

CTXB_EXPORT CUresult cuLinkComplete(CUlinkState state, void** image, std::size_t* bytes) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Link> link = find_link(state);
    check_value(image != nullptr);
    const std::vector<std::byte>& made = link->complete();
    *image = const_cast<std::byte*>(made.data());  // the driver's signature; nobody writes there
    if (bytes != nullptr) *bytes = made.size();
  });
}

CTXB_EXPORT CUresult cuLinkDestroy(CUlinkState state) {
  CTXB_COUNT_CALL();
  return working([&] { Process::instance().links.take(state); });
}
