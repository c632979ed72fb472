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
  /// Where the server's own folder is made. Empty: TMPDIR, or /tmp. The absolute path may have at
  /// most 57 bytes, because a socket's path cannot be long. While a broker is open, TMPDIR and PATH
  /// count as they were when the first one was opened.
  std::filesystem::path folder{};
  std::chrono::milliseconds start_timeout{10'000};  ///< For the server, until it takes commands.
};

/// The host's own MPS server. Only processes that get its variable use it: the host does not,
/// and neither do other workers.
///
/// Its clients run on the GPU at the same time, so the GPU need not change from one process to
/// another. But a fault of one client ends CUDA in all of them, and no new process can use the
/// server until all of them have ended.
///
/// A worker that cannot use the server runs without MPS, and no error says so. Check
/// DeviceInfo::mps in WorkerGraph::devices.
///
/// It is move-only. A moved-from server can only be destroyed or assigned to. It has a folder that
/// only the user can open. The program ctxbroker-mps ends the server and removes the folder when
/// the host ends, even by a kill. They are left only if ctxbroker-mps is killed as well.
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
  /// Ends the server, and waits until it has ended. Destroy the workers first. If some are left,
  /// the server gives them a second, and then CUDA ends in them.
  ~MpsServer();

  /// Returns "CUDA_MPS_PIPE_DIRECTORY=...". Add it to WorkerOptions::environment of each worker
  /// that is to use this server.
  [[nodiscard]] std::string variable() const;

 private:
  std::unique_ptr<detail::MpsKeeper> keeper_;
};

}  // namespace ctxbroker
