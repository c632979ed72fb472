// The host's side of CTXB_EXT_NATIVE_CONTEXT and CTXB_EXT_THREAD_CHECK.
#include "plugin/host_call.hpp"

namespace ctxbroker::detail {
namespace {

ctxb_status get_native_context(const ctxb_host* host, void** context, std::int32_t* device) {
  constexpr unsigned int with_context =
      in(Phase::activating) | in(Phase::active) | in(Phase::processing) | in(Phase::deactivating);
  return host_call(host, "native-context", with_context,
                   [&](Instance& instance, Activation& activation) {
                     if (context == nullptr || device == nullptr) {
                       return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, "native-context",
                                            "context or device is null");
                     }
                     // Of a green lease each thread has a context of its own.
                     CUcontext current = nullptr;
                     const CUresult status = activation.lease->table().ctx_get_current(&current);
                     *context = current;
                     *device = activation.lease->device_ordinal();
                     return answer(instance, "native-context", status);
                   });
}

std::uint32_t is_main_thread(const ctxb_host* host) {
  const Instance* instance = instance_of(host);
  return instance != nullptr && instance->is_main_thread() ? 1 : 0;
}

std::uint32_t is_process_thread(const ctxb_host* host) {
  const Instance* instance = instance_of(host);
  return instance != nullptr && instance->is_process_thread() ? 1 : 0;
}

}  // namespace

const ctxb_native_context_extension native_context_extension{sizeof(ctxb_native_context_extension),
                                                             get_native_context};

const ctxb_thread_check_extension thread_check_extension{sizeof(ctxb_thread_check_extension),
                                                         is_main_thread, is_process_thread};

}  // namespace ctxbroker::detail
