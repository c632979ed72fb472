#include "context/translated_leases.hpp"

#include <new>
#include <utility>

namespace ctxbroker::detail {

struct TranslatedLeases::One {
  LeaseSlot* slot;
  std::uint64_t generation;
  One* next;
};

CUresult TranslatedLeases::enter(LeaseUsers& users, std::uint64_t generation,
                                 CUcontext* context) noexcept {
  for (const One* one = first_; one != nullptr; one = one->next) {
    if (one->generation != generation) continue;
    *context = one->slot->context;
    return CUDA_SUCCESS;
  }
  auto* one = new (std::nothrow) One{nullptr, generation, first_};
  if (one == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult status = users.enter(&one->slot, false);
  if (status != CUDA_SUCCESS) {
    delete one;
    return status;
  }
  first_ = one;
  *context = one->slot->context;
  return CUDA_SUCCESS;
}

bool TranslatedLeases::has(CUcontext context) const noexcept {
  for (const One* one = first_; one != nullptr; one = one->next) {
    if (one->slot->context == context) return true;
  }
  return false;
}

void TranslatedLeases::leave_all() noexcept {
  for (One* one = std::exchange(first_, nullptr); one != nullptr;) {
    One* const next = one->next;
    LeaseUsers::leave(*one->slot);
    delete one;
    one = next;
  }
}

struct OpenStreamCaptures::One {
  CUstream stream;
  One* next;
};

void OpenStreamCaptures::begun(CUstream stream) noexcept {
  // Without memory the guard does not end this capture, and the plug-in keeps its own mess.
  if (auto* one = new (std::nothrow) One{stream, first_}) first_ = one;
}

bool OpenStreamCaptures::ended(CUstream stream) noexcept {
  for (One** at = &first_; *at != nullptr; at = &(*at)->next) {
    if ((*at)->stream != stream) continue;
    delete std::exchange(*at, (*at)->next);
    return true;
  }
  return false;
}

CUstream OpenStreamCaptures::take() noexcept {
  One* const one = first_;
  if (one == nullptr) return nullptr;
  CUstream const stream = one->stream;
  first_ = one->next;
  delete one;
  return stream;
}

}  // namespace ctxbroker::detail
