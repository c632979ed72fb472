// SPDX-License-Identifier: Apache-2.0
// The commands. Each returns how it ended, or throws Failure or the broker's Error.
#pragma once

#include "exit_code.hpp"
#include "options.hpp"

namespace ctxbroker::sample_host {

ExitCode run_image(const Options& options);
ExitCode run_audio(const Options& options);
ExitCode run_list(const Options& options);
ExitCode run_doctor(const Options& options);
ExitCode run_kernels(const Options& options);

}  // namespace ctxbroker::sample_host
