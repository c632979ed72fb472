#include "module/module_loader.hpp"

#include <array>
#include <cstdint>
#include <vector>

#include "observe/span.hpp"

namespace ctxbroker::detail {
namespace {

// The driver's two logs of one load, in memory that it fills while it loads.
class JitLogs {
 public:
  JitLogs() : error_(bytes), info_(bytes) {
    // The driver takes numbers in place of pointers here, as cuModuleLoadDataEx defines it.
    values_ = {error_.data(), reinterpret_cast<void*>(static_cast<std::uintptr_t>(bytes)),
               info_.data(), reinterpret_cast<void*>(static_cast<std::uintptr_t>(bytes))};
  }

  unsigned int count() const noexcept { return static_cast<unsigned int>(options_.size()); }
  CUjit_option* options() noexcept { return options_.data(); }
  void** values() noexcept { return values_.data(); }

  std::string error() const { return text(error_); }
  std::string info() const { return text(info_); }

 private:
  static constexpr std::size_t bytes = 16384;

  static std::string text(const std::vector<char>& log) {
    std::size_t length = 0;
    while (length < log.size() && log[length] != '\0') ++length;
    while (length > 0 && (log[length - 1] == '\n' || log[length - 1] == ' ')) --length;
    return {log.data(), length};
  }

  std::vector<char> error_, info_;
  std::array<CUjit_option, 4> options_{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                                       CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 4> values_{};
};

Error load_error(const Lease& lease, const ModuleImage& image, CUresult status,
                 const JitLogs& logs) {
  const Error error = driver_error(lease.table(), status, "cuModuleLoadDataEx",
                                   "module \"" + image.name + "\" cannot be loaded", lease.owner());
  const std::string log = logs.error().empty() ? logs.info() : logs.error();
  return {error.kind(),
          error.message() + (log.empty() ? "; the JIT log is empty" : "; JIT log: " + log),
          error.origin()};
}

void check_promised_kernels(Lease& lease, const ModuleImage& image, CUmodule module) {
  for (const auto& kernel : image.kernels) {
    CUfunction function = nullptr;
    const CUresult status =
        lease.note(lease.table().module_get_function(&function, module, kernel.c_str()));
    if (status == CUDA_ERROR_NOT_FOUND) {
      throw Error(ErrorKind::kernel_image,
                  "module \"" + image.name + "\" has no kernel \"" + kernel +
                      "\", which its descriptor promises; was it declared extern \"C\"?",
                  {.device = lease.device_ordinal(), .tenant = lease.tenant().name});
    }
    check(lease.table(), status, "cuModuleGetFunction", lease.owner(),
          [&] { return "kernel \"" + kernel + "\" cannot be looked up"; });
  }
}

}  // namespace

LoadedModule load_module(const std::shared_ptr<Lease>& lease, const ModuleImage& image) {
  const std::vector<std::byte> data = checked_copy(image);
  JitLogs logs;
  CUmodule handle = nullptr;
  const ContextGuard guard(lease->target());
  CUresult status = lease->note(guard.status());
  check(lease->table(), status, "cuCtxPushCurrent_v2", lease->owner(),
        [] { return "the lease's context cannot be entered"; });
  {
    const ScopedSpan span(SpanCategory::load, "load module", image.name.c_str(), lease->tenant().id,
                          data.size());
    status = lease->note(lease->table().module_load_data_ex(&handle, data.data(), logs.count(),
                                                            logs.options(), logs.values()));
  }
  if (status != CUDA_SUCCESS) throw load_error(*lease, image, status, logs);
  LoadedModule loaded{image.name, Module(lease, handle)};
  check_promised_kernels(*lease, image, handle);
  const TenantIdentity& tenant = lease->tenant();
  tenant.recorder->record(
      Severity::debug, tenant.id, tenant.name, "module",
      "module \"" + image.name + "\" loaded" + (logs.info().empty() ? "" : ": " + logs.info()));
  return loaded;
}

}  // namespace ctxbroker::detail
