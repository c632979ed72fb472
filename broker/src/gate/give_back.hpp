// What a tenant still holds when it ends.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "driver/driver_table.hpp"
#include "gate/gated_tenant.hpp"
#include "gate/holding.hpp"

namespace ctxbroker::detail {

struct GivenBack {
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  std::string what;                // "2 x stream, 1 x event"; empty: nothing was left
  std::string of_code;             // the same of what stays with code that stays
  std::string put_off;             // the same of what has to wait for work that hangs
  CUresult status = CUDA_SUCCESS;  // the first that the driver refused
};

// Whether the driver waits for work on the device before it ends a thing of that kind.
bool waits_for_work(Kind kind) noexcept;

// Ends one thing that was made in a lease and that nobody holds any more; as Lease::give_back.
std::optional<CUresult> end_holding(GatedTenant& tenant, const Holding& holding,
                                    std::function<void(CUresult)> settle,
                                    bool quiet = false) noexcept;

// Gives it back, each thing where it was made; what has ended with its context is only forgotten.
// What has to wait for work that hangs is put off, and its bytes stay counted. While the tenant is
// open. With code that stays in the process (`resident`), its modules, streams and events stay too,
// and where there is a runtime library, memory as well. The next tenant that opens this GatedTenant
// has them. Throws std::bad_alloc.
GivenBack give_back_holdings(GatedTenant& tenant, bool resident);

// Retains the primary for good, once per device and process: code that stays loaded behind a closed
// tenant may hold its handle, as the runtime library does, which is of no use any more once that
// context has ended. Any thread.
CUresult keep_primary(const DriverTable& driver, CUdevice device) noexcept;

}  // namespace ctxbroker::detail
