// SPDX-License-Identifier: Apache-2.0
#include "plugin/claimed_libraries.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "context/tenant_identity.hpp"
#include "gate/code_map.hpp"
#include "gate/common_libraries.hpp"
#include "gate/gated_tenant.hpp"
#include "gate/tenant_code.hpp"
#include "gate/tenant_imports.hpp"
#include "plugin/cuda_package.hpp"
#include "process/own_files.hpp"

namespace ctxbroker::detail {
namespace {

namespace fs = std::filesystem;

// The broker's own libraries lie in one folder and below it.
bool is_of_the_broker(const fs::path& file) {
  const auto folder = [] {
    const fs::path gate = beside_this_library("ctxbroker/ctxbroker_gate.so");
    std::error_code error;
    const fs::path real = fs::canonical(gate, error);
    return (error ? gate : real).parent_path();
  };
  static const fs::path& own = *new fs::path(folder());  // threads ask until the process ends
  return file.parent_path() == own || file.filename().native().starts_with("libctxbroker");
}

bool matches(const LibraryPattern& pattern, const fs::path& file) {
  return fnmatch(pattern.match.c_str(), file.c_str(), 0) == 0;
}

// Returns whether the pattern would give the library to a tenant, were it the first.
bool fits(const LibraryPattern& pattern, const LoadedObject& library, const fs::path& file,
          CodeClaims::Meeting meeting) {
  if (!matches(pattern, file)) return false;
  if (pattern.tenant != each_package) return true;
  return !meeting.is_adopted && !is_in_no_package(library, file) && uses_cuda(library, file);
}

}  // namespace

ClaimedLibraries::ClaimedLibraries(ClaimingBroker broker, std::vector<LibraryPattern> patterns)
    : broker_(std::move(broker)), patterns_(std::move(patterns)) {
  const std::lock_guard lock(mutex_);
  for (const LibraryPattern& one : patterns_) {
    if (one.tenant != each_package) opened(one.tenant);
  }
}

ClaimedLibraries::Opened& ClaimedLibraries::opened(const std::string& name) {
  const auto found = tenants_.find(name);
  if (found != tenants_.end()) return found->second;
  return tenants_.try_emplace(name, Opened{broker_.open(name), {}}).first->second;
}

std::string ClaimedLibraries::name_for(const Package& package) {
  const auto known = std::find_if(packages_.begin(), packages_.end(),
                                  [&](const auto& one) { return one.first == package; });
  if (known != packages_.end()) return known->second;
  const auto is_taken = [&](const std::string& name) {
    return std::any_of(packages_.begin(), packages_.end(),
                       [&](const auto& one) { return one.second == name; });
  };
  // "host" is the host's own name.
  const std::string wanted = package.name == "host" ? "package-host" : package.name;
  std::string name = wanted;
  for (int number = 2; is_taken(name); ++number) name = wanted + "-" + std::to_string(number);
  packages_.emplace_back(package, name);
  return name;
}

CodeClaims::Claim ClaimedLibraries::claimant(const LoadedObject& library,
                                             const std::vector<LoadedObject>& present,
                                             Meeting meeting) {
  // The program, and what serves the whole process.
  if (library.path.find('/') == std::string::npos || is_starter(library) ||
      calls_for_others(library)) {
    return {};
  }
  const fs::path file = real_file(library);
  if (is_of_the_broker(file)) return {};
  const auto fitting = [&](const LibraryPattern& one) { return fits(one, library, file, meeting); };
  const auto first = std::find_if(patterns_.begin(), patterns_.end(), fitting);
  if (first == patterns_.end()) return {};
  std::string tenant = first->tenant;
  Package package;
  if (tenant == each_package) package = package_of(library, file, present);
  const auto index = static_cast<std::size_t>(first - patterns_.begin());
  const std::lock_guard lock(mutex_);
  if (is_closed_) return {};
  if (tenant == each_package) tenant = name_for(package);
  const TenantIdentity& identity = *opened(tenant).its.identity;
  matched_.insert(index);
  for (std::size_t later = index + 1; later < patterns_.size(); ++later) {
    if (!late_.contains(later) && fitting(patterns_[later])) late_.emplace(later, index);
  }
  const auto [entry, is_new] = libraries_.try_emplace(
      file.native(),
      LibraryMetrics{file.native(), identity.id, identity.name, patterns_[index].match});
  GatedTenant* const gated = identity.gated.load(std::memory_order_acquire);
  if (gated == nullptr) return {};
  if (meeting.was_here) gated->main().mark_was_here();
  if (is_new) {
    identity.log(Severity::info, "library",
                 file.native() + " is the tenant's, by the pattern \"" + patterns_[index].match +
                     "\"" +
                     (meeting.was_here ? "; what it made with CUDA before stays the host's" : ""));
  }
  return {&gated->main(), patterns_[index].tenant == each_package};
}

const LibraryPattern* ClaimedLibraries::taken_by(const fs::path& file,
                                                 const std::string& tenant) const {
  const auto found = std::find_if(patterns_.begin(), patterns_.end(), [&](const auto& one) {
    return one.tenant != each_package && matches(one, file);
  });
  return found != patterns_.end() && found->tenant != tenant ? &*found : nullptr;
}

std::shared_ptr<TenantImpl> ClaimedLibraries::handle(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = tenants_.find(name);
  if (is_closed_ || found == tenants_.end()) return nullptr;
  auto handle = found->second.handle.lock();
  if (handle == nullptr) {
    const auto& tenant = found->second.its.tenant;
    handle = {tenant.get(), [owner = tenant, forget = broker_.forget_handle](TenantImpl*) mutable {
                forget(*owner);
                owner.reset();
              }};
    found->second.handle = handle;
  }
  return handle;
}

bool ClaimedLibraries::has(const TenantImpl& tenant) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(tenants_.begin(), tenants_.end(),
                     [&](const auto& one) { return one.second.its.tenant.get() == &tenant; });
}

bool ClaimedLibraries::is_in_use(const TenantImpl& tenant) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(tenants_.begin(), tenants_.end(), [&](const auto& one) {
    return one.second.its.tenant.get() == &tenant && !one.second.handle.expired();
  });
}

void ClaimedLibraries::look() noexcept {
  look_for_claimed_code();
  if (!broker_.has_late_gate) return;
  const std::lock_guard lock(mutex_);
  const std::uint64_t owners = owners_of_code();
  if (std::exchange(owners_, owners) == owners) return;
  for (const auto& [name, one] : tenants_) {
    GatedTenant* const gated = one.its.identity->gated.load(std::memory_order_acquire);
    if (gated != nullptr) lead_imports(*gated);
  }
}

std::vector<LibraryMetrics> ClaimedLibraries::libraries() const {
  const std::lock_guard lock(mutex_);
  std::vector<LibraryMetrics> all;
  all.reserve(libraries_.size());
  for (const auto& [key, one] : libraries_) all.push_back(one);
  return all;
}

std::vector<std::string> ClaimedLibraries::unmatched() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (std::size_t index = 0; index < patterns_.size(); ++index) {
    if (!matched_.contains(index) && !late_.contains(index)) all.push_back(patterns_[index].match);
  }
  return all;
}

std::vector<LatePattern> ClaimedLibraries::late() const {
  const std::lock_guard lock(mutex_);
  std::vector<LatePattern> all;
  for (const auto& [index, earlier] : late_) {
    if (matched_.contains(index)) continue;
    all.push_back({patterns_[index].match, patterns_[index].tenant, patterns_[earlier].match,
                   patterns_[earlier].tenant});
  }
  return all;
}

void ClaimedLibraries::close() noexcept {
  remove_claims(*this);
  std::map<std::string, Opened> tenants;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    tenants.swap(tenants_);
  }
  for (const auto& [name, one] : tenants) broker_.keep_code(*one.its.tenant);
}

}  // namespace ctxbroker::detail
