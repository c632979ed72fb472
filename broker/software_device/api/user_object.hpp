// SPDX-License-Identifier: Apache-2.0
// User objects: what an application ties to the life of graphs.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

class UserObject {
 public:
  UserObject(void* its_data, CUhostFn its_destroy, unsigned references);

  // CUDA_ERROR_INVALID_VALUE for a count of none or of more than there can be.
  void retain(unsigned count);
  // With the last reference the object leaves the process's table, and its function is called on a
  // driver thread. More than there are: CUDA_ERROR_INVALID_VALUE, and nothing changes.
  void release(unsigned count);

  CUuserObject handle = nullptr;

 private:
  void end() noexcept;

  void* const data_;
  const CUhostFn destroy_;
  std::mutex mutex_;
  std::size_t references_;
};

// The object of a handle; CUDA_ERROR_INVALID_VALUE.
std::shared_ptr<UserObject> find_user_object(CUuserObject handle);

// The references that one graph holds; it gives them back at its end. A copy holds as many.
class UserObjectHolds {
 public:
  UserObjectHolds() = default;
  UserObjectHolds(const UserObjectHolds& other);
  UserObjectHolds& operator=(const UserObjectHolds&) = delete;
  ~UserObjectHolds();

  // Takes over references that somebody holds already.
  void take_over(const std::shared_ptr<UserObject>& object, unsigned count);
  void release(const std::shared_ptr<UserObject>& object, unsigned count);  // INVALID_VALUE

 private:
  std::map<std::shared_ptr<UserObject>, unsigned> counts_;
};

}  // namespace ctxbroker::software
