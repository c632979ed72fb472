// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ctxbroker::software {

// As NVIDIA's driver does once, when it is initialised: loads the tool that CUDA_INJECTION64_PATH
// names, and calls its InitializeInjection, which finds the driver by its name.
void inject_tool() noexcept;

}  // namespace ctxbroker::software
