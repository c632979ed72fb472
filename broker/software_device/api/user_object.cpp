// SPDX-License-Identifier: Apache-2.0
#include "api/user_object.hpp"

#include <climits>
#include <utility>

#include "api/device.hpp"
#include "api/process.hpp"
#include "api/status.hpp"

namespace ctxbroker::software {

UserObject::UserObject(void* its_data, CUhostFn its_destroy, unsigned references)
    : data_(its_data), destroy_(its_destroy), references_(references) {}

void UserObject::retain(unsigned count) {
  check_value(count != 0 && count <= INT_MAX);
  std::lock_guard lock(mutex_);
  check_value(references_ != 0);
  references_ += count;
}

void UserObject::release(unsigned count) {
  {
    std::lock_guard lock(mutex_);
    check_value(count != 0 && count <= references_);
    references_ -= count;
    if (references_ != 0) return;
  }
  end();
}

// A host function like others, in a stream of its own.
void UserObject::end() noexcept {
  try {
    Process& process = Process::instance();
    process.user_objects.take(handle);
    auto command = std::make_shared<Command>();
    command->kind = Command::Kind::host_function;
    command->even_after_fault = true;
    command->work = [data = data_, destroy = destroy_] {
      destroy(data);
      return CUDA_SUCCESS;
    };
    auto queue = std::make_shared<StreamQueue>();
    queue->ordering = Ordering::independent;
    process.devices.front()->executor.enqueue(queue, command, [] {});
  } catch (...) {
    // The driver has ended, or memory has: then the object ends with the process.
  }
}

std::shared_ptr<UserObject> find_user_object(CUuserObject handle) {
  try {
    return Process::instance().user_objects.find(handle);
  } catch (const Failure&) {
    fail(CUDA_ERROR_INVALID_VALUE);  // what these calls say
  }
}

UserObjectHolds::UserObjectHolds(const UserObjectHolds& other) {
  for (const auto& [object, count] : other.counts_) {
    object->retain(count);
    counts_[object] = count;
  }
}

UserObjectHolds::~UserObjectHolds() {
  for (const auto& [object, count] : counts_) {
    try {
      object->release(count);
    } catch (const Failure&) {  // somebody released what was not theirs
    }
  }
}

void UserObjectHolds::take_over(const std::shared_ptr<UserObject>& object, unsigned count) {
  counts_[object] += count;
}

void UserObjectHolds::release(const std::shared_ptr<UserObject>& object, unsigned count) {
  auto found = counts_.find(object);
  check_value(found != counts_.end() && count != 0 && count <= found->second);
  found->second -= count;
  if (found->second == 0) counts_.erase(found);
  object->release(count);
}

}  // namespace ctxbroker::software
