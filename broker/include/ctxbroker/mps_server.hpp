// SPDX-License-Identifier: Apache-2.0
/// @file
/// An MPS server (NVIDIA's Multi-Process Service) for workers that trust each other.
/// docs/workers.md says what it saves and what it costs.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "ctxbroker/export.hpp"

namespace ctxbroker {

namespace detail {
class MpsKeeper;
}

/// How to start an MPS server.
struct MpsServerOptions {
  /// NVIDIA's control program. A name without a folder is looked up in PATH.
  std::filesystem::path program{"nvidia-cuda-mps-control"};
  /// Where the server's own folder is made. Empty: the system's folder for temporary files. The
  /// path must be short, because sockets lie there.
  std::filesystem::path folder{};
  std::chrono::milliseconds start_timeout{10'000};  ///< For the server, until it takes commands.
};

/// An MPS server of the host's own. Only processes that get its variable use it: the host does not,
/// and neither do other workers.
///
/// Its clients share the GPU without the time that a change of the process costs. But a fault of
/// one ends CUDA in all of them, and no new process gets in until all of them have ended.
///
/// It is move-only. A moved-from server can only be destroyed or assigned to. It has a folder that
/// only the user can open. Its processes end with the host, also when the host is killed.
///
/// Threads: the host's calls must not overlap.
class CTXB_API MpsServer {
 public:
  /// Starts the server, and waits until it takes commands.
  ///
  /// @throws Error  `plugin_not_found` if there is no such program; `plugin_load` if it or
  ///                ctxbroker-mps does not start, with the end of its log; `output_file` if its
  ///                folder cannot be made; `invalid_argument` if the folder's path is too long for
  ///                a socket, or start_timeout is not positive or above a day. After an error, no
  ///                process and no folder is left.
  explicit MpsServer(const MpsServerOptions& options = {});
  MpsServer(MpsServer&& other) noexcept;
  MpsServer& operator=(MpsServer&& other) noexcept;
  /// Ends the server. Destroy the workers first: CUDA ends in those that are left, after a second.
  ~MpsServer();

  /// Returns "CUDA_MPS_PIPE_DIRECTORY=...", for WorkerOptions::environment of each worker that
  /// belongs to the group.
  [[nodiscard]] std::string variable() const;

 private:
  std::unique_ptr<detail::MpsKeeper> keeper_;
};

}  // namespace ctxbroker
