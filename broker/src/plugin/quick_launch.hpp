// A launch of a plug-in's kernel as the plug-in asks for it.
#pragma once

#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {

// `options` may be null. A plug-in calls it across the C boundary, through either extension.
ctxb_status launch_kernel(const ctxb_host* host, const ctxb_launch* launch,
                          const ctxb_launch_options* options) noexcept;

}  // namespace ctxbroker::detail
