// SPDX-License-Identifier: Apache-2.0
#include "vulkan_semaphore.hpp"

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ctxbroker {
namespace {

// From the specification of Vulkan 1.1 and of VK_KHR_external_semaphore_fd.
using Handle = void*;  // of an instance, a device: dispatchable
using SemaphoreHandle = std::uint64_t;
constexpr std::uint32_t version_1_1 = (1U << 22) | (1U << 12);
constexpr std::uint32_t nvidia = 0x10de;
constexpr std::uint32_t opaque_descriptor = 1;
constexpr const char* extension = "VK_KHR_external_semaphore_fd";

struct Begin {
  std::int32_t type;
  const void* next = nullptr;
};
struct ApplicationInfo : Begin {
  const char* application = "ctxbroker test";
  std::uint32_t application_version = 1;
  const char* engine = nullptr;
  std::uint32_t engine_version = 0, api_version = version_1_1;
};
struct InstanceInfo : Begin {
  std::uint32_t flags = 0;
  const ApplicationInfo* application = nullptr;
  std::uint32_t layer_count = 0;
  const char* const* layers = nullptr;
  std::uint32_t extension_count = 0;
  const char* const* extensions = nullptr;
};
struct QueueInfo : Begin {
  std::uint32_t flags = 0, family = 0, count = 1;
  const float* priorities = nullptr;
};
struct DeviceInfo : Begin {
  std::uint32_t flags = 0, queue_count = 1;
  const QueueInfo* queues = nullptr;
  std::uint32_t layer_count = 0;
  const char* const* layers = nullptr;
  std::uint32_t extension_count = 1;
  const char* const* extensions = &extension;
  const void* features = nullptr;
};
struct ExportInfo : Begin {
  std::uint32_t handle_types = opaque_descriptor;
};
struct SemaphoreInfo : Begin {
  std::uint32_t flags = 0;
};
struct DescriptorInfo : Begin {
  SemaphoreHandle semaphore = 0;
  std::uint32_t handle_type = opaque_descriptor;
};

using AnyFunction = void (*)();
using LookUp = AnyFunction (*)(Handle, const char*);

class Semaphore : public VulkanSemaphore {
 public:
  ~Semaphore() override {
    if (semaphore_ != 0)
      call<void(Handle, SemaphoreHandle, const void*)>("vkDestroySemaphore")(device_, semaphore_,
                                                                             nullptr);
    if (device_ != nullptr) call<void(Handle, const void*)>("vkDestroyDevice")(device_, nullptr);
    if (instance_ != nullptr)
      call<void(Handle, const void*)>("vkDestroyInstance")(instance_, nullptr);
  }

  // Returns why there is none, or null.
  const char* start() {
    void* const library = dlopen("libvulkan.so.1", RTLD_NOW);
    if (library == nullptr) return "there is no libvulkan.so.1";
    look_up_ = reinterpret_cast<LookUp>(dlsym(library, "vkGetInstanceProcAddr"));
    if (look_up_ == nullptr) return "libvulkan.so.1 has no vkGetInstanceProcAddr";
    ApplicationInfo application{{0}};
    InstanceInfo instance{{1}};
    instance.application = &application;
    if (call<int(const InstanceInfo*, const void*, Handle*)>("vkCreateInstance")(&instance, nullptr,
                                                                                 &instance_) != 0) {
      return "Vulkan makes no instance";
    }
    Handle const physical = find_device();
    if (physical == nullptr) return "Vulkan has no NVIDIA device";
    const float priority = 1;
    QueueInfo queue{{2}};
    queue.priorities = &priority;
    DeviceInfo device{{3}};
    device.queues = &queue;
    if (call<int(Handle, const DeviceInfo*, const void*, Handle*)>("vkCreateDevice")(
            physical, &device, nullptr, &device_) != 0) {
      return "Vulkan makes no device with VK_KHR_external_semaphore_fd";
    }
    ExportInfo exported{{1000077000}};
    SemaphoreInfo semaphore{{9, &exported}};
    if (call<int(Handle, const SemaphoreInfo*, const void*, SemaphoreHandle*)>("vkCreateSemaphore")(
            device_, &semaphore, nullptr, &semaphore_) != 0) {
      return "Vulkan makes no semaphore that can be exported";
    }
    return nullptr;
  }

  int descriptor() override {
    const auto look_up = reinterpret_cast<LookUp>(look_up_(instance_, "vkGetDeviceProcAddr"));
    using Get = int (*)(Handle, const DescriptorInfo*, int*);
    const auto get = reinterpret_cast<Get>(look_up(device_, "vkGetSemaphoreFdKHR"));
    DescriptorInfo wanted{{1000079001}};
    wanted.semaphore = semaphore_;
    int made = -1;
    return get != nullptr && get(device_, &wanted, &made) == 0 ? made : -1;
  }

 private:
  template <typename Function>
  Function* call(const char* name) const {
    return reinterpret_cast<Function*>(look_up_(instance_, name));
  }
  Handle find_device() const {
    std::uint32_t count = 0;
    const auto list = call<int(Handle, std::uint32_t*, Handle*)>("vkEnumeratePhysicalDevices");
    if (list(instance_, &count, nullptr) != 0) return nullptr;
    std::vector<Handle> all(count);
    if (list(instance_, &count, all.data()) < 0) return nullptr;
    for (Handle const one : all) {
      std::uint32_t properties[1024] = {};  // versions of interface and driver, vendor, ...
      call<void(Handle, void*)>("vkGetPhysicalDeviceProperties")(one, properties);
      if (properties[2] == nvidia) return one;
    }
    return nullptr;
  }

  LookUp look_up_ = nullptr;
  Handle instance_ = nullptr, device_ = nullptr;
  SemaphoreHandle semaphore_ = 0;
};

}  // namespace

std::unique_ptr<VulkanSemaphore> VulkanSemaphore::make(const char** why_not) {
  auto made = std::make_unique<Semaphore>();
  *why_not = made->start();
  if (*why_not != nullptr) return nullptr;
  return made;
}

}  // namespace ctxbroker
