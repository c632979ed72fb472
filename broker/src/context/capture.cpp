#include "context/capture.hpp"

#include <new>
#include <utility>

namespace ctxbroker::detail {

struct Captures::One {
  Occupancy* occupancy;
  Seat* seat;
  CUcontext context;
  std::uint64_t generation;
  One* next;
};

CUresult Captures::enter(Occupancy& occupancy, std::uint64_t generation,
                         CUcontext* context) noexcept {
  for (const One* one = first_; one != nullptr; one = one->next) {
    if (one->generation != generation) continue;
    *context = one->context;
    return CUDA_SUCCESS;
  }
  auto* one = new (std::nothrow) One{&occupancy, nullptr, nullptr, generation, first_};
  if (one == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult status = occupancy.enter(&one->context, &one->seat);
  if (status != CUDA_SUCCESS) {
    delete one;
    return status;
  }
  first_ = one;
  *context = one->context;
  return CUDA_SUCCESS;
}

bool Captures::has(CUcontext context) const noexcept {
  for (const One* one = first_; one != nullptr; one = one->next) {
    if (one->context == context) return true;
  }
  return false;
}

void Captures::leave_all() noexcept {
  for (One* one = std::exchange(first_, nullptr); one != nullptr;) {
    One* const next = one->next;
    one->occupancy->leave(one->seat);
    delete one;
    one = next;
  }
}

struct OpenStreamCaptures::One {
  CUstream stream;
  One* next;
};

void OpenStreamCaptures::begun(CUstream stream) noexcept {
  // Without memory it is not ended with the guard, and the plug-in is left with its own mess.
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
