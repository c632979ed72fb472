// How a probing process tells its answers: lines on standard output, between whatever else is
// written there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/probe.hpp"
#include "probe/process.hpp"

namespace ctxbroker::detail {

void tell_value(std::string_view name, double value);  // name of a question
void tell_missing(std::string_view name, std::string_view reason);
void tell_failure(std::string_view reason);  // of the whole probe

// Takes over what the process `probe` told; questions of it that it did not answer get the reason
// from how it ended.
void take_answers(std::string_view probe, const ProcessEnd& end, std::vector<ProbeAnswer>& answers);

}  // namespace ctxbroker::detail
