// What is measured: every answer's name, and which process measures it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/probe.hpp"

namespace ctxbroker::detail {

struct Question {
  const char* probe;  // the process that measures it
  const char* name;
  const char* title;
  ProbeUnit unit;
  const char* reference;
};

const std::vector<Question>& questions();
std::vector<std::string> probe_names();  // each once, in order

// A report whose answers are all not measured.
std::vector<ProbeAnswer> open_answers();

}  // namespace ctxbroker::detail
