// Whose code lies at an address. A tenant's are the libraries that came into the process while one
// of its libraries was loaded, or that its code has opened later, but for those that another tenant
// needs or opens too. Code that stays in the process stays the same GatedTenant's, which each
// tenant opens that adopts it.
#pragma once

#include <cstdint>
#include <vector>

#include "gate/gated_tenant.hpp"
#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

// Stands around dlopen and dlclose of a tenant's library. What is new meanwhile, and code that is
// running already before dlopen has returned, is the tenant's. Code is forgotten before it may
// leave the process, for addresses are reused. [main] thread, like all loading.
class CodeChange {
 public:
  enum class Way { arrives, leaves };
  CodeChange(GatedTenant& tenant, Way way);  // throws std::bad_alloc
  ~CodeChange();
  CodeChange(const CodeChange&) = delete;
  CodeChange& operator=(const CodeChange&) = delete;

 private:
  GatedTenant& tenant_;
};

// A tenant's code is about to open a library; and has opened it: what is new with it, and needed by
// nobody else, is that tenant's. What was another open tenant's already is nobody's from now on,
// and what a closed one left is opened beside the tenant. Throw std::bad_alloc. Any thread.
void note_code_before_open();
void note_opened_code(GatedTenant& tenant, void* library);
// Whether the loader's search for a library depends on which of the tenant's code opens it. Throws
// std::bad_alloc. Any thread.
bool has_run_path(const GatedTenant& tenant);

struct CodeOwner {
  GatedTenant* tenant = nullptr;  // null: nobody's that is known, which is to say the host's
  bool starts_threads = false;    // the C or C++ library, whose code every thread begins with
};
// An address in what dlopen has returned.
const void* address_in(void* library) noexcept;
// Any thread.
CodeOwner owner_of_code(const void* address) noexcept;

// The libraries that are this tenant's alone. Throws std::bad_alloc. Any thread.
std::vector<Extent> code_of(const GatedTenant& tenant);

// Whether any word of [first, end) could be an address in a tenant's code; true also while a
// tenant's library arrives or leaves. A look at a stack that is far cheaper than unwinding it. Any
// thread; takes no lock.
bool may_point_into_tenants(const std::uintptr_t* first, const std::uintptr_t* end) noexcept;

}  // namespace ctxbroker::detail
