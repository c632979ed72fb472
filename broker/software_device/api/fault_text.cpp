// SPDX-License-Identifier: Apache-2.0
#include "api/fault_text.hpp"

#include <atomic>
#include <new>

#include "api/entry.hpp"
#include "api/logs.hpp"
#include "ctxbroker/software_device.h"
#include "memory/owner.hpp"

namespace ctxbroker::software {
namespace {

struct FaultText {
  std::string text;
  const char* owner;
  const FaultText* older;  // of those that were forgotten
};

// Never destroyed, also when the device starts over: whoever has asked keeps the text.
std::atomic<FaultText*> first_fault_text = nullptr;
const FaultText* forgotten_texts = nullptr;  // under the lock of Process::restart

}  // namespace

void remember_fault(const std::string& text, const char* owner) noexcept {
  log_error(text);
  try {
    auto* fault = new FaultText{text, owner, nullptr};
    FaultText* none = nullptr;
    if (!first_fault_text.compare_exchange_strong(none, fault)) delete fault;
  } catch (const std::bad_alloc&) {  // the status has to do
  }
}

void forget_fault() noexcept {
  FaultText* const fault = first_fault_text.exchange(nullptr);
  if (fault == nullptr) return;
  fault->older = forgotten_texts;
  forgotten_texts = fault;
}

}  // namespace ctxbroker::software

using namespace ctxbroker::software;

CTXB_EXPORT int ctxb_software_fault(const char** text, const char** owner) {
  const FaultText* const fault = first_fault_text.load();
  if (text != nullptr) *text = fault == nullptr ? "" : fault->text.c_str();
  if (owner != nullptr) *owner = fault == nullptr ? nullptr : fault->owner;
  return 0;
}

CTXB_EXPORT int ctxb_software_ask_owner(const char* (*owner)(void)) {
  owner_function = owner;
  return 0;
}
