// SPDX-License-Identifier: Apache-2.0
#include "context/host_pages.hpp"

#include <system_error>
#include <utility>

#include "ctxbroker/error.hpp"
#include "observe/system_failure.hpp"

namespace ctxbroker::detail {

std::shared_ptr<HostPages> HostPages::make(std::size_t bytes) {
  if (bytes == 0) {
    throw Error(ErrorKind::invalid_argument, "a block of 0 bytes cannot be made or lent");
  }
  try {
    Descriptor file = sealed_memory("ctxbroker-memory", bytes);
    Mapping mapping(file.get(), bytes);
    return std::make_shared<HostPages>(std::move(file), std::move(mapping));
  } catch (const std::system_error& error) {
    throw system_failure(error);
  }
}

}  // namespace ctxbroker::detail
