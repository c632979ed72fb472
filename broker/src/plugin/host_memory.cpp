// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/host_memory.hpp"

#include <cstdint>
#include <limits>
#include <utility>

#include "context/host_blocks.hpp"
#include "context/host_pages.hpp"
#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "plugin/access.hpp"
#include "plugin/broker_impl.hpp"

namespace ctxbroker {

HostMemory Broker::host_memory(std::size_t bytes) {
  detail::HostBlocks& all = open_impl().host_blocks();
  return detail::Access::host_memory(all.add(detail::HostPages::make(bytes)));
}

HostMemory Broker::register_memory(void* memory, std::size_t bytes) {
  detail::HostBlocks& all = open_impl().host_blocks();
  const bool can_be = memory != nullptr && bytes != 0 &&
                      bytes <= std::numeric_limits<std::uintptr_t>::max() -
                                   reinterpret_cast<std::uintptr_t>(memory);
  if (!can_be) {
    throw Error(ErrorKind::invalid_argument,
                "register_memory: the memory is null or has 0 bytes, or its end is no address");
  }
  return detail::Access::host_memory(all.add(std::make_shared<detail::HostPages>(memory, bytes)));
}

std::shared_ptr<detail::HostPages> detail::Access::pages_of(const HostMemory& memory) {
  return memory.block_ == nullptr ? nullptr : memory.block_->pages();
}

HostMemory& HostMemory::operator=(HostMemory&& other) noexcept {
  if (this == &other) return *this;
  reset();
  block_ = std::move(other.block_);
  return *this;
}

void* HostMemory::data() const& noexcept {
  return block_ == nullptr ? nullptr : block_->pages()->begin();
}

std::size_t HostMemory::bytes() const noexcept {
  return block_ == nullptr ? 0 : block_->pages()->bytes();
}

bool HostMemory::is_registered() const noexcept {
  return block_ != nullptr && block_->is_registered_now();
}

bool HostMemory::reset() noexcept {
  const std::shared_ptr<detail::HostBlock> block = std::move(block_);
  block_ = nullptr;
  if (block == nullptr || !block->pages()->are_hosts() || !block->is_in_its_process()) return true;
  return block->release();
}

}  // namespace ctxbroker
