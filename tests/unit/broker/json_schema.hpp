// SPDX-License-Identifier: Apache-2.0
// As much of JSON Schema as the schemas in docs use.
#pragma once

#include <nlohmann/json.hpp>

namespace ctxbroker {

// Whether `value` is valid under `schema`, a part of `root`. Throws std::logic_error for a keyword
// that this does not know, so that no rule is passed over.
bool is_valid(const nlohmann::json& value, const nlohmann::json& schema,
              const nlohmann::json& root);

}  // namespace ctxbroker
