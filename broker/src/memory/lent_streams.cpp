// SPDX-License-Identifier: Apache-2.0
#include "memory/lent_streams.hpp"

#include <map>
#include <mutex>

#include "memory/ledger.hpp"

namespace ctxbroker::detail {
namespace {

struct Lent {
  std::mutex mutex;
  std::map<CUstream, TenantId> to;
  static Lent& all() {
    static auto* const one = new Lent;  // threads of plug-ins may ask until the process ends
    return *one;
  }
};

}  // namespace

LentStream::LentStream(CUstream stream, TenantId tenant) : stream_(stream) {
  const std::lock_guard lock(Lent::all().mutex);
  Lent::all().to[stream] = tenant;
}

LentStream::~LentStream() {
  if (stream_ == nullptr) return;
  {
    const std::lock_guard lock(Lent::all().mutex);
    Lent::all().to.erase(stream_);
  }
  ownership_changed();
}

std::optional<TenantId> borrower_of(CUstream stream) noexcept {
  const std::lock_guard lock(Lent::all().mutex);
  const auto found = Lent::all().to.find(stream);
  return found != Lent::all().to.end() ? std::optional(found->second) : std::nullopt;
}

}  // namespace ctxbroker::detail
