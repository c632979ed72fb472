// SPDX-License-Identifier: Apache-2.0
/// @file
/// The C++ side of the plug-in ABI: everything that an author needs to write a plug-in library.
///
///     class Exposure final : public ctxbroker::sdk::Plugin {
///      public:
///       static constexpr ctxbroker::sdk::Descriptor descriptor = ...;
///       using Plugin::Plugin;
///       void activate(const Activation& activation) override;  // kernels, device memory
///       Outcome process(const Job& job) override;              // launches; never waits
///     };
///     CTXB_EXPORT_PLUGINS(Exposure)
///
/// Errors are exceptions (Failure). None of them leaves the library: the SDK turns each into a
/// status and tells the host why. The SDK is header-only C++17 and needs no CUDA header.
///
/// The tags in brackets say on which thread and with which context a function is called; plugin.h
/// explains them.
#pragma once

#include "ctxbroker/plugin.h"
#include "ctxbroker/sdk/arguments.hpp"
#include "ctxbroker/sdk/descriptor.hpp"
#include "ctxbroker/sdk/device_buffer.hpp"
#include "ctxbroker/sdk/events.hpp"
#include "ctxbroker/sdk/export.hpp"
#include "ctxbroker/sdk/failure.hpp"
#include "ctxbroker/sdk/global.hpp"
#include "ctxbroker/sdk/host.hpp"
#include "ctxbroker/sdk/job.hpp"
#include "ctxbroker/sdk/loss.hpp"
#include "ctxbroker/sdk/module.hpp"
#include "ctxbroker/sdk/parameter.hpp"
#include "ctxbroker/sdk/plugin_base.hpp"
#include "ctxbroker/sdk/rectangle.hpp"
#include "ctxbroker/sdk/segment.hpp"
#include "ctxbroker/sdk/state_stream.hpp"
#include "ctxbroker/sdk/stream.hpp"
#include "ctxbroker/sdk/views.hpp"
