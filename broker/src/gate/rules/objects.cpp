// SPDX-License-Identifier: Apache-2.0
// Memory, modules, libraries, streams and events: what a tenant takes or makes is counted, and only
// its holder gives it back or ends it.
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "context/hung_work.hpp"
#include "context/open_captures.hpp"
#include "gate/held.hpp"
#include "gate/rule.hpp"
#include "gate/stored_memory.hpp"
#include "gate/use.hpp"
#include "image/image.hpp"

namespace ctxbroker::detail {
namespace {

// The forms without _v2 are those of CUDA 3.1, with addresses and sizes of 32 bits. Structures that
// are only passed on are void: the calling convention knows no other difference.
using Address = CUdeviceptr;
using Old = unsigned int;

// Gives the host memory that tenants' stores keep unused, if the driver has too little.
template <typename Allocate>
CUresult allocate_for_host(Allocate&& allocate) noexcept {
  const CUresult status = allocate();
  CUdevice device = -1;
  if (status != CUDA_ERROR_OUT_OF_MEMORY || !any_gated_tenant() ||
      CurrentDevice::call(&device) != CUDA_SUCCESS) {
    return status;
  }
  GatedTenant* const tenant = tenant_on(device);
  return tenant != nullptr && relieve_device(*tenant) ? allocate() : status;
}

template <SymbolName name, typename A, typename Size>
struct Allocates {
  using Real = DriverFunction<name, CUresult(A*, Size)>;
  static CUresult call(A* out, Size bytes) noexcept {
    const Caller caller = enter_rule<Real>();
    const auto by_driver = [&] { return Real::call(out, bytes); };
    if (caller.tenant == nullptr) return allocate_for_host(by_driver);
    Holding holding{.kind = Kind::memory, .bytes = bytes};
    if constexpr (std::is_same_v<A, Address>) {
      if (out != nullptr && bytes != 0) holding.store = store_here(*caller.tenant);
    }
    holding.pooled = holding.store != nullptr;
    MemoryStore* const store = holding.store.get();
    return make_held(*caller.tenant, std::move(holding), out, [&] {
      if constexpr (std::is_same_v<A, Address>) {
        if (store != nullptr) return report_loss(*caller.tenant, store->allocate(out, bytes));
      }
      return by_driver();
    });
  }
};

// Its size is known once the driver has chosen the pitch.
template <SymbolName name, typename A, typename Size>
struct AllocatesPitched {
  using Real = DriverFunction<name, CUresult(A*, Size*, Size, Size, unsigned)>;
  static CUresult call(A* out, Size* pitch, Size width, Size height, unsigned element) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(out, pitch, width, height, element);
    // A row is at most one unit of pitch longer than asked for.
    constexpr std::uint64_t most_pitch_unit = 512;
    const std::uint64_t bytes = (static_cast<std::uint64_t>(width) + most_pitch_unit - 1) /
                                most_pitch_unit * most_pitch_unit * height;
    Holding holding{.kind = Kind::memory, .bytes = bytes};
    if constexpr (std::is_same_v<A, Address>) {
      const bool is_right = out != nullptr && pitch != nullptr && width != 0 && height != 0 &&
                            (element == 4 || element == 8 || element == 16);
      if (is_right) holding.store = store_here(*caller.tenant);
    }
    holding.pooled = holding.store != nullptr;
    MemoryStore* const store = holding.store.get();
    return make_held(*caller.tenant, std::move(holding), out, [&] {
      if constexpr (std::is_same_v<A, Address>) {
        if (store != nullptr) {
          return report_loss(*caller.tenant, store->allocate_pitched(out, pitch, width, height));
        }
      }
      return Real::call(out, pitch, width, height, element);
    });
  }
};

template <SymbolName name, typename Size, typename... Flags>
struct AllocatesPinned {
  using Real = DriverFunction<name, CUresult(void**, Size, Flags...)>;
  static CUresult call(void** out, Size bytes, Flags... flags) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(out, bytes, flags...);
    Holding holding{.kind = Kind::host_memory, .host_bytes = bytes};
    if (out != nullptr && bytes != 0 && can_be_stored(flags...)) {
      holding.store = store_here(*caller.tenant, Kind::host_memory);
    }
    holding.pooled = holding.store != nullptr;
    MemoryStore* const store = holding.store.get();
    return make_held(*caller.tenant, std::move(holding), out, [&] {
      if (store == nullptr) return Real::call(out, bytes, flags...);
      CUdeviceptr address = 0;
      const CUresult status = store->allocate(&address, bytes);
      if (status == CUDA_SUCCESS) *out = reinterpret_cast<void*>(address);
      return status;
    });
  }
};

// The address is the caller's own, so the call goes in and nothing comes out.
template <SymbolName name>
struct Registers {
  using Real = DriverFunction<name, CUresult(void*, std::size_t, unsigned)>;
  static CUresult call(void* address, std::size_t bytes, unsigned flags) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(address, bytes, flags);
    // Without a context, the driver refuses whatever the size is.
    CUdevice device = -1;
    const CUresult current = CurrentDevice::call(&device);
    if (current != CUDA_SUCCESS) return current;
    const CUresult status =
        make_held(*caller.tenant, Holding{.kind = Kind::registration, .host_bytes = bytes},
                  &address, [&] { return Real::call(address, bytes, flags); });
    if (status == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
      tell_of_registration(address, bytes, false, caller.tenant);
    }
    return status;
  }
};

// Memory that nobody has registered is nobody's, and no breach. The ledger does not have what the
// host has registered, so the driver is asked.
using PointerAttribute =
    DriverFunction<"cuPointerGetAttribute", CUresult(void*, CUpointer_attribute, CUdeviceptr)>;
bool is_registered(std::uint64_t address) noexcept {
  unsigned type = 0;
  return ledger().find(Kind::registration, address) || !PointerAttribute::is_bound() ||
         PointerAttribute::call(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
             CUDA_ERROR_INVALID_VALUE;
}

using Unregister = DriverFunction<"cuMemHostUnregister", CUresult(void*)>;
CUresult unregister(void* address) noexcept {
  const Caller caller = enter_rule<Unregister>();
  const std::uint64_t value = handle_value(address);
  if (address == nullptr) return Unregister::call(address);
  const auto end = [&] { return Unregister::call(address); };
  if (caller.tenant == nullptr) {
    return end_by_host(caller, Unregister::symbol, Kind::registration, value, end);
  }
  if (!is_registered(value)) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  return end_held(*caller.tenant, Unregister::symbol, Kind::registration, value, end);
}

// Frees memory. Memory that a graph allocated is freed like any other, and belongs to the graph
// again if the graph still names it. A call in the order of a stream waits for nothing.
template <bool in_stream_order, SymbolName name, typename A, typename... Rest>
struct FreesAs {
  using Real = DriverFunction<name, CUresult(A, Rest...)>;
  static CUresult call(A address, Rest... rest) noexcept {
    const Caller caller = enter_rule<Real>();
    const std::uint64_t value = address;
    if (address == 0) return Real::call(address, rest...);
    if (caller.tenant == nullptr) {
      const auto refused = refuse_nobody(caller, Real::symbol, Kind::graph_memory, value);
      if (refused) return *refused;
      return end_by_host(caller, Real::symbol, Kind::memory, value,
                         [&] { return Real::call(address, rest...); });
    }
    GatedTenant& tenant = *caller.tenant;
    if constexpr (in_stream_order) {
      const CUresult refused =
          check_use(tenant, Real::symbol, Kind::stream, handle_value(rest)..., lent);
      if (refused != CUDA_SUCCESS) return refused;
    }
    const auto free = [&] { return Real::call(address, rest...); };
    const auto held = ledger().remove(Kind::memory, value, tenant.holder());
    if (held) return end_forgotten(tenant, *held, free, in_stream_order);
    const auto of_graph = ledger().remove(Kind::graph_memory, value, tenant.holder());
    if (!of_graph) return end_held(tenant, Real::symbol, Kind::memory, value, free);
    const CUresult status = free();
    settle_freed(*of_graph, status);
    return status;
  }
};

template <SymbolName name, typename A>
using Frees = FreesAs<false, name, A>;
template <SymbolName name>
using FreesAsync = FreesAs<true, name, Address, CUstream>;

// Copies of what a load reads and writes, because the thread that makes it may be left behind.
class ModuleLoad {
 public:
  // The file's name, or the image. Throws ImageError for an image of unknown size.
  void copy_file(const char* name) { bytes_.assign(name, name + std::strlen(name) + 1); }
  void copy_image(const void* image) {
    // A wrapper points to the image, which is the library's.
    constexpr std::size_t whole = 24, pointer_at = 8;
    if (image::format_of(static_cast<const char*>(image), whole) == image::Format::wrapper) {
      std::memcpy(&image, static_cast<const char*>(image) + pointer_at, sizeof image);
    }
    const auto* const first = static_cast<const char*>(image);
    const std::size_t size = image::image_size(image);
    bytes_.assign(first, first + size);
    bytes_.push_back(0);  // of text
    compiles_ = image::format_of(first, size) != image::Format::elf;
  }
  // False: they name things that cannot be copied here.
  bool copy_options(unsigned count, const CUjit_option* options, void** values) {
    options_.assign(options, options + count);
    values_.assign(values, values + count);
    given_ = values;
    for (unsigned index = 0; index < count; ++index) {
      const CUjit_option option = options[index];
      if (option == CU_JIT_GLOBAL_SYMBOL_NAMES || option == CU_JIT_GLOBAL_SYMBOL_ADDRESSES ||
          option == CU_JIT_REFERENCED_KERNEL_NAMES || option == CU_JIT_REFERENCED_VARIABLE_NAMES ||
          option >= CU_JIT_NUM_OPTIONS) {
        return false;
      }
      Log* const log = option == CU_JIT_INFO_LOG_BUFFER    ? &logs_[0]
                       : option == CU_JIT_ERROR_LOG_BUFFER ? &logs_[1]
                                                           : nullptr;
      if (log != nullptr) log->given = static_cast<char*>(values[index]);
      if (option == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) logs_[0].size = size_in(values[index]);
      if (option == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) logs_[1].size = size_in(values[index]);
    }
    for (Log& log : logs_) {
      if (log.given == nullptr) continue;
      if (log.size == 0) return false;
      log.copy.assign(log.given, log.given + log.size);
      for (unsigned index = 0; index < count; ++index) {
        const bool names_it =
            options[index] == CU_JIT_INFO_LOG_BUFFER || options[index] == CU_JIT_ERROR_LOG_BUFFER;
        if (names_it && values[index] == log.given) values_[index] = log.copy.data();
      }
    }
    return true;
  }
  // The driver has written there: numbers in place of pointers, and texts.
  void copy_back() const {
    for (std::size_t index = 0; index < options_.size(); ++index) {
      const bool is_log =
          options_[index] == CU_JIT_INFO_LOG_BUFFER || options_[index] == CU_JIT_ERROR_LOG_BUFFER;
      if (!is_log) given_[index] = values_[index];
    }
    for (const Log& log : logs_) {
      if (log.given != nullptr && log.size != 0) std::memcpy(log.given, log.copy.data(), log.size);
    }
  }

  const char* bytes() const noexcept { return bytes_.data(); }
  CUjit_option* options() noexcept { return options_.data(); }
  void** values() noexcept { return values_.data(); }
  // The compiler may take long.
  bool compiles() const noexcept { return compiles_; }

  CUmodule made = nullptr;

 private:
  struct Log {
    char* given = nullptr;
    std::size_t size = 0;
    std::vector<char> copy;
  };
  // The driver takes numbers of 32 bits in place of pointers here.
  static std::size_t size_in(void* value) noexcept {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(value));
  }

  std::vector<char> bytes_;
  bool compiles_ = true;
  std::vector<CUjit_option> options_;
  std::vector<void*> values_;
  void** given_ = nullptr;
  std::array<Log, 2> logs_;
};

// Makes a tenant's load in the memory of its lease. When the driver waits for work of a neighbour
// that does not end, the tenant gets CUDA_ERROR_NOT_READY after the limit.
template <typename Load>
CUresult load_in_time(GatedTenant& tenant, const char* function,
                      const std::shared_ptr<Lease>& lease, const std::shared_ptr<ModuleLoad>& what,
                      Load load) {
  MakeRequest request;
  request.owner = tenant.identity().lasting_name;
  request.perform = [lease, what, load] {
    return call_in(lease->table(), lease->memory_context(), [&] { return load(*what); });
  };
  request.undo = [lease, what] { lease->unload_left_behind(what->made); };
  if (what->compiles()) {
    // Freeing waits for the same work as loading. What takes longer after that is the compiler.
    request.longer = compiler_time;
    request.probe = [lease] {
      const DriverTable& driver = lease->table();
      call_in(driver, lease->memory_context(), [&] {
        CUdeviceptr smallest = 0;
        const CUresult status = driver.mem_alloc(&smallest, 1);
        if (status != CUDA_SUCCESS) return status;
        const CUresult freed = driver.mem_free(smallest);
        return freed != CUDA_SUCCESS ? driver.mem_free(smallest) : freed;  // it would be lost
      });
    };
  }
  const auto status = lease->family()->make(std::move(request));
  if (status) return *status;
  tenant.log_once(function,
                  (lease->family()->why_not_made() +
                   ", and the driver loads no module into that memory before the work ends; the "
                   "call was answered CUDA_ERROR_NOT_READY")
                      .c_str(),
                  Severity::warning);
  return CUDA_ERROR_NOT_READY;
}

// CUresult name(CUmodule*, const void* image, options...) or CUresult name(CUmodule*, const char*).
template <SymbolName name, typename Source, typename... Options>
struct LoadsModule {
  using Real = DriverFunction<name, CUresult(CUmodule*, Source, Options...)>;
  static CUresult call(CUmodule* out, Source source, Options... options) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(out, source, options...);
    GatedTenant& tenant = *caller.tenant;
    return make_held(tenant, Holding{.kind = Kind::module}, out, [&] {
      try {
        if (const auto status = load(tenant, out, source, options...)) return *status;
      } catch (const std::bad_alloc&) {
        return CUDA_ERROR_OUT_OF_MEMORY;
      } catch (...) {  // NOLINT(bugprone-empty-catch): an image that the driver refuses itself
      }
      return Real::call(out, source, options...);
    });
  }

 private:
  // Nothing: the driver's call is to be made on this thread. It refuses at once what is wrong, and
  // what is not allowed while the thread captures a stream.
  static std::optional<CUresult> load(GatedTenant& tenant, CUmodule* out, Source source,
                                      Options... options) {
    const bool captures = OpenCaptures::all().is_open_here();
    if (out == nullptr || source == nullptr || captures) return std::nullopt;
    const auto lease = tenant.lease_meant(current_context());
    if (lease == nullptr || lease->lost()) return std::nullopt;
    const auto what = std::make_shared<ModuleLoad>();
    if constexpr (std::is_same_v<Source, const char*>) {
      what->copy_file(source);
    } else {
      what->copy_image(source);
    }
    const auto by_driver = [options...](ModuleLoad& one) {
      if constexpr (sizeof...(Options) == 0) {
        return Real::call(&one.made, one.bytes());
      } else {
        const auto& [count, names, values] = std::tuple(options...);
        return Real::call(&one.made, one.bytes(), count, one.options(), one.values());
      }
    };
    if constexpr (sizeof...(Options) != 0) {
      const auto& [count, names, values] = std::tuple(options...);
      if (count != 0 && (names == nullptr || values == nullptr)) return std::nullopt;
      if (!what->copy_options(count, names, values)) return std::nullopt;
    }
    const CUresult status = load_in_time(tenant, Real::symbol, lease, what, by_driver);
    if (status == CUDA_ERROR_NOT_READY) return status;
    if constexpr (sizeof...(Options) != 0) what->copy_back();
    if (status == CUDA_SUCCESS) *out = what->made;
    return status;
  }
};

template <SymbolName name>
using LoadsLibrary = Counted<name, Kind::library, CUlibrary, const void*, CUjit_option*, void**,
                             unsigned, CUlibraryOption*, void**, unsigned>;

using GetIpcHandle = DriverFunction<"cuIpcGetMemHandle", CUresult(CUipcMemHandle*, Address)>;
CUresult get_ipc_handle(CUipcMemHandle* handle, Address address) noexcept {
  const Caller caller = enter_rule<GetIpcHandle>();
  const CUresult status = GetIpcHandle::call(handle, address);
  if (status != CUDA_SUCCESS && caller.tenant != nullptr && find_stored(address, Kind::memory)) {
    leave_store(*caller.tenant, GetIpcHandle::symbol);
  }
  return status;
}

// The host can lend a tenant what it has imported.
constexpr Use external_memory{1, Kind::external_memory, lent};

constexpr RuleRow object_rows[] = {
    row<Allocates<"cuMemAlloc", Old, Old>>(),
    row<Allocates<"cuMemAlloc_v2", Address, std::size_t>>(),
    row<AllocatesPitched<"cuMemAllocPitch", Old, Old>>(),
    row<AllocatesPitched<"cuMemAllocPitch_v2", Address, std::size_t>>(),
    row<Makes<"cuMemAllocManaged", Kind::memory, bytes_first, Address, std::size_t, unsigned>>(),
    row<Frees<"cuMemFree", Old>>(),
    row<Frees<"cuMemFree_v2", Address>>(),
    row<FreesAsync<"cuMemFreeAsync">>(),
    row<FreesAsync<"cuMemFreeAsync_ptsz">>(),

    row<AllocatesPinned<"cuMemAllocHost", Old>>(),
    row<AllocatesPinned<"cuMemAllocHost_v2", std::size_t>>(),
    row<AllocatesPinned<"cuMemHostAlloc", std::size_t, unsigned>>(),
    row<Ends<"cuMemFreeHost", Kind::host_memory, void*>>(),
    row<Registers<"cuMemHostRegister">>(),
    row<Registers<"cuMemHostRegister_v2">>(),
    rule<Unregister, unregister>(),

    row<Counted<"cuArrayCreate", Kind::array, CUarray, const void*>>(),
    row<Counted<"cuArrayCreate_v2", Kind::array, CUarray, const void*>>(),
    row<Counted<"cuArray3DCreate", Kind::array, CUarray, const void*>>(),
    row<Counted<"cuArray3DCreate_v2", Kind::array, CUarray, const void*>>(),
    row<Ends<"cuArrayDestroy", Kind::array, CUarray>>(),
    row<Counted<"cuMipmappedArrayCreate", Kind::mipmapped_array, CUmipmappedArray, const void*,
                unsigned>>(),
    row<Ends<"cuMipmappedArrayDestroy", Kind::mipmapped_array, CUmipmappedArray>>(),

    // The driver frees these as its own.
    row<Checked<Counted<"cuExternalMemoryGetMappedBuffer", Kind::memory, Address, CUexternalMemory,
                        const void*>,
                external_memory>>(),
    row<Checked<Counted<"cuExternalMemoryGetMappedMipmappedArray", Kind::mipmapped_array,
                        CUmipmappedArray, CUexternalMemory, const void*>,
                external_memory>>(),

    rule<GetIpcHandle, get_ipc_handle>(),
    row<Counted<"cuIpcOpenMemHandle", Kind::ipc_memory, Address, CUipcMemHandle, unsigned>>(),
    row<Counted<"cuIpcOpenMemHandle_v2", Kind::ipc_memory, Address, CUipcMemHandle, unsigned>>(),
    row<Ends<"cuIpcCloseMemHandle", Kind::ipc_memory, Address>>(),

    row<LoadsModule<"cuModuleLoad", const char*>>(),
    row<LoadsModule<"cuModuleLoadData", const void*>>(),
    row<LoadsModule<"cuModuleLoadDataEx", const void*, unsigned, CUjit_option*, void**>>(),
    row<LoadsModule<"cuModuleLoadFatBinary", const void*>>(),
    row<Ends<"cuModuleUnload", Kind::module, CUmodule>>(),
    row<LoadsLibrary<"cuLibraryLoadData">>(),
    row<LoadsLibrary<"cuLibraryLoadFromFile">>(),
    row<Ends<"cuLibraryUnload", Kind::library, CUlibrary>>(),

    row<Counted<"cuStreamCreate", Kind::stream, CUstream, unsigned>>(),
    row<Counted<"cuStreamCreateWithPriority", Kind::stream, CUstream, unsigned, int>>(),
    row<Checked<
        Counted<"cuGreenCtxStreamCreate", Kind::stream, CUstream, CUgreenCtx, unsigned, int>,
        Use{1, Kind::green_context, lent}>>(),
    row<Ends<"cuStreamDestroy", Kind::stream, CUstream>>(),
    row<Ends<"cuStreamDestroy_v2", Kind::stream, CUstream>>(),
    row<Counted<"cuEventCreate", Kind::event, CUevent, unsigned>>(),
    row<Counted<"cuEventCreateFromEGLSync", Kind::event, CUevent, void*, unsigned>>(),
    row<Counted<"cuIpcOpenEventHandle", Kind::event, CUevent, CUipcEventHandle>>(),
    row<Ends<"cuEventDestroy", Kind::event, CUevent>>(),
    row<Ends<"cuEventDestroy_v2", Kind::event, CUevent>>(),
};

}  // namespace

constinit const std::span<const RuleRow> object_rules = object_rows;

}  // namespace ctxbroker::detail
