// SPDX-License-Identifier: Apache-2.0
// TenantImpl: the libraries that are loaded for a tenant, and how they leave.
#include <dlfcn.h>

#include <cstdio>
#include <new>
#include <utility>

#include "ctxbroker/error.hpp"
#include "gate/code_map.hpp"
#include "gate/loaded_objects.hpp"
#include "gate/tenant_imports.hpp"
#include "ledger/ledger.hpp"
#include "observe/crash_report.hpp"
#include "observe/running.hpp"
#include "observe/span.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/left_in_library.hpp"
#include "plugin/left_in_threads.hpp"
#include "plugin/library_file.hpp"
#include "plugin/loader_turn.hpp"
#include "plugin/needed_files.hpp"
#include "plugin/shared_variables.hpp"
#include "plugin/tenant_impl.hpp"
#include "process/maker.hpp"

namespace ctxbroker::detail {

std::shared_ptr<LibraryImage> TenantImpl::adopt(const std::filesystem::path& canonical,
                                                const AdoptOptions& options, bool stays) {
  if (const ClaimedLibraries* const claims = broker_.claims()) {
    if (const LibraryPattern* const taken = claims->taken_by(canonical, identity_->name)) {
      throw Error(ErrorKind::plugin_load,
                  "\"" + canonical.string() + "\" is tenant " + taken->tenant +
                      "'s, by the policy's pattern \"" + taken->match +
                      "\"; adopt it for that tenant, or change the pattern",
                  {.tenant = identity_->name});
    }
  }
  // Also around all that asks the loader about the library afterwards.
  const LoaderTurn turn(*identity_, canonical, "constructor", broker_.end_timeout());
  if (!turn) {
    throw Error(ErrorKind::plugin_load,
                "\"" + canonical.string() + "\" was not loaded: " + turn.why_not() +
                    "; load it again when that has returned, load the other library in a worker, "
                    "or raise BrokerOptions::end_timeout",
                {.call = "dlopen", .tenant = identity_->name});
  }
  auto image = std::make_shared<LibraryImage>();
  image->path = canonical;
  if (broker_.files().find(canonical).is_replaced) {
    identity_->log(Severity::warning, "plugin", replaced_text(canonical));
  }
  std::string hint;
  for (const std::string& text : find_other_versions(canonical)) {
    identity_->log(Severity::warning, "plugin", text);
    hint += "; " + text;
  }
  const bool was_here = is_loaded(canonical);
  {
    std::optional<CodeChange> change;
    if (gated() != nullptr) change.emplace(*gated(), CodeChange::Way::arrives, canonical.native());
    const ContextGuard guard(broker_.nowhere(), {identity_.get(), nullptr, "dlopen"});
    const ScopedSpan span(SpanCategory::load, "dlopen", identity_->name.c_str(), identity_->id);
    const RunningNote note(nullptr, lasting(canonical.native()), "dlopen");
    image->library = load_library(canonical, options, identity_.get(), hint, [&] {
      if (change) change->end();
    });
  }
  say_replaced_handlers(*identity_);
  image->code = extent_at(address_in(image->library.native()));
  if (gated() != nullptr) {
    try {
      open_left_code(address_in(image->library.native()));
      take_code(*image);
    } catch (...) {
      return_to_loader(*image, was_here);
      throw;
    }
  }
  add_library_code(image->code.begin, image->code.end, lasting(canonical.native()));
  say_shared_variables(*image);
  if (stays) keep_resident(canonical);
  const std::lock_guard lock(mutex_);
  libraries_.push_back(image);
  return image;
}

void TenantImpl::say_shared_variables(const LibraryImage& image) {
  std::vector<Extent> own = gated() != nullptr ? code_of(*gated()) : std::vector<Extent>();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : libraries_) own.push_back(one->code);
  }
  for (const std::string& text : find_shared_variables(image.code, own)) {
    identity_->log(Severity::warning, "plugin", image.path.string() + " " + text);
  }
}

// The library may be one that an earlier tenant left in the process: its GatedTenant is opened
// again. That is the main one from now on, unless this tenant has code or things of its own
// already.
void TenantImpl::open_left_code(const void* code) {
  GatedTenant* const left = owner_of_code(code).tenant;
  if (left == nullptr || left->is_open()) return;
  GatedTenant& own = *gated();
  const bool has_own = !code_of(own).empty() || own.primary_retains() != 0 ||
                       !ledger().held_by(own.holder()).empty();
  own.open_beside(*left);
  if (has_own) return;
  for (const LimitRow& row : limit_rows()) {
    left->limits().of(row.limit).set_limit(own.limits().of(row.limit).limit());
  }
  own.give_way_to(*left);
  identity_->gated.store(left, std::memory_order_release);
}

// The library may have been in the process before, as the host's or as something that another
// library needs. Throws Error (plugin_load) if it cannot become the tenant's.
void TenantImpl::take_code(const LibraryImage& image) {
  const CodeClaim claim = claim_code(*gated(), address_in(image.library.native()));
  lead_imports(*gated());
  const auto say = [&](Severity severity, const std::string& text) {
    identity_->log(severity, "gate", image.path.string() + text);
  };
  switch (claim.result) {
    case ClaimResult::own:
      return;
    case ClaimResult::taken:
      if (const std::size_t kept = count_kept_functions(claim.code); kept != 0) {
        say(Severity::warning,
            " was in the process before it was adopted, and has kept " +
                (kept == 1 ? "the address of a driver function"
                           : "the addresses of " + std::to_string(kept) + " driver functions") +
                ", as a runtime library does at its first call: the "
                "gate, which came after the driver, does not hold calls through that. It holds "
                "its other calls from now on. Adopt the library before its first CUDA call, or "
                "link the program with ctxbroker::broker");
        return;
      }
      say(Severity::info,
          " was in the process before it was adopted; from now on it is the tenant's. What it made "
          "with CUDA before stays the host's");
      return;
    case ClaimResult::shared:
      say(Severity::warning,
          " is used by " +
              (claim.other != nullptr ? "tenant " + claim.other->identity().name
                                      : std::string("another tenant")) +
              " too, so it belongs to neither: inside a guard its calls are the guarded tenant's, "
              "and on its own threads they are the host's. Give each tenant a copy of the file "
              "under a SONAME of its own, or load one of the two in a worker");
      return;
    case ClaimResult::claimed:
      throw Error(ErrorKind::plugin_load,
                  "\"" + image.path.string() + "\" is tenant " + claim.other->identity().name +
                      "'s, by a pattern of another broker's policy; adopt it for that tenant of "
                      "the other broker, or change the pattern",
                  {.tenant = identity_->name});
    case ClaimResult::common:
      throw Error(ErrorKind::plugin_load,
                  "\"" + image.path.string() +
                      "\" serves the whole process and can belong to no tenant: its calls are "
                      "those of the code that calls it; adopt the library that uses it",
                  {.tenant = identity_->name});
  }
}

// The library, and those that came with it and may leave with it.
std::vector<Extent> TenantImpl::code_that_may_leave(const LibraryImage& library) {
  std::vector<Extent> all{library.code};
  if (gated() != nullptr) {
    for (const Extent& one : code_of(*gated())) {
      if (one != library.code) all.push_back(one);
    }
  }
  return all;
}

bool TenantImpl::report_what_is_left(const LibraryImage& library) {
  for (const Extent& code : code_that_may_leave(library)) {
    const Left left = what_is_left_in(code);
    if (left.text.empty()) continue;
    Dl_info where{};
    const bool is_known = dladdr(reinterpret_cast<const void*>(code.begin), &where) != 0;
    const std::string text = "left something behind in " +
                             (is_known ? where.dli_fname : library.path.string()) + ": " +
                             left.text + "; " + library.path.string() + " stays in the process";
    if (left.is_breach) {
      strike(*identity_, nullptr, "dlclose", text.c_str());
    } else {
      identity_->log(Severity::warning, "tenant",
                     library.path.string() + " stays in the process, because " + left.text);
    }
    return true;
  }
  return false;
}

bool TenantImpl::unload(LibraryImage& library) noexcept {
  const ContextGuard guard(broker_.nowhere(), {identity_.get(), nullptr, "dlclose"});
  const ScopedSpan span(SpanCategory::load, "dlclose", identity_->name.c_str(), identity_->id);
  const RunningNote note(nullptr, lasting(library.path.native()), "dlclose");
  return unload_library(library.library, library.path, identity_.get());
}

void TenantImpl::return_to_loader(LibraryImage& library, bool was_here) noexcept {
  try {
    // Its constructors have run, and may have started a thread.
    if (!was_here && !what_is_left_in(library.code).text.empty()) keep_resident(library.path);
  } catch (...) {  // out of memory: nobody knows what it has left
    keep_resident(library.path);
  }
  unload(library);
  try {
    record_code_before_open();  // so that nobody takes what comes to its addresses for the tenant's
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the next look does it
  }
}

// The loader serves another thread and would make this one wait, so it is not even told to keep the
// library: nobody closes it any more.
void TenantImpl::leave_behind(LibraryImage& library, bool should_go,
                              const LoaderTurn& turn) noexcept {
  resident_ = true;
  keep_for_ever(new (std::nothrow) boost::dll::shared_library(std::move(library.library)));
  if (!should_go) return;
  identity_->log(Severity::warning, "tenant", [&] {
    return library.path.string() + " stays in the process, because " + turn.why_not();
  });
}

void TenantImpl::dismiss(LibraryImage& library, bool may_go) noexcept {
  if (!library.library.is_loaded()) return;
  // A library that has run may have registered callbacks, threads, thread-local values: it stays
  // mapped unless it says that it can go. What is enqueued may call its functions, too.
  std::optional<LeavingKeys> keys;
  std::string caller;
  try {
    if (may_go) caller = what_may_call_code();
  } catch (...) {
    may_go = false;
  }
  const LoaderTurn turn(*identity_, library.path, "destructor", broker_.end_timeout());
  if (!turn) return leave_behind(library, may_go, turn);
  try {
    if (may_go && caller.empty() && report_what_is_left(library)) may_go = false;
    if (may_go && caller.empty()) keys.emplace(code_that_may_leave(library));
    if (keys && keys->are_in_use()) {
      caller = "a thread that ends may be in a destructor of it (pthread_key_create)";
    }
    if (!caller.empty()) {
      may_go = false;
      identity_->log(Severity::warning, "tenant",
                     library.path.string() + " stays in the process, because " + caller);
    }
  } catch (...) {
    may_go = false;
  }
  if (!may_go) {
    keep_resident(library.path);
    resident_ = true;
  }
  std::optional<CodeChange> change;
  try {
    if (gated() != nullptr && may_go)
      change.emplace(*gated(), CodeChange::Way::leaves, library.path.native());
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: its addresses stay booked
  }
  if (!unload(library) && may_go) {
    identity_->log(Severity::warning, "tenant", [&] {
      return "somebody has closed " + library.path.string() +
             " more often than they opened it; it stayed in the process until now all the same";
    });
  }
  // Another tenant's handle, or the process, may keep it.
  if (may_go && extent_at(reinterpret_cast<const void*>(library.code.begin)) != library.code) {
    remove_library_code(library.code.begin);
    if (const int left = keys ? keys->delete_left() : 0; left > 0) {
      char text[512];
      std::snprintf(text, sizeof text,
                    "left %d key(s) of pthread_key_create that lead into %s; they were deleted",
                    left, library.path.c_str());
      strike(*identity_, nullptr, "dlclose", text);
    }
  }
}

}  // namespace ctxbroker::detail
