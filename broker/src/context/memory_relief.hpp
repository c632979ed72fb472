// Whoever can give up device memory when there is too little.
#pragma once

namespace ctxbroker::detail {

class MemoryRelief {
 public:
  virtual ~MemoryRelief() = default;
  // On any thread, inside any guard. True when something was given up, so that the allocation that
  // failed is worth another try.
  virtual bool relieve(int device) noexcept = 0;
};

}  // namespace ctxbroker::detail
