// SPDX-License-Identifier: Apache-2.0
// Writes docs/runtime_functions.md.
#include <sstream>

#include "runtime_functions.hpp"

namespace ctxbroker {
namespace {

constexpr const char* introduction = R"(# The runtime library in a lease

This page is for authors of plug-ins on CUDA's runtime library. It says which functions of that library give a plug-in other
results than they give a program that has the process to itself, and why. [A plug-in on the runtime
API](runtime_plugins.md) says how to write such a plug-in.

A test calls each function that `cuda_runtime_api.h` and `cuda_profiler_api.h` of the CUDA Toolkit declare, in a set-up in which
it has something to do. It does so in a process without a broker, and as a tenant in each kind of lease, with the gate, with
the static and with the shared runtime library. Then it compares the status, the results, the error that is left, and the state of the work
on the device. Functions for OpenGL, EGL, VDPAU, Direct3D and Vulkan are not called. Nothing but such an API makes an external
semaphore or a graphics resource, so their functions get none. `green` is a green lease of the whole device, and `green:16`
one with at least 16 multiprocessors of its own.

The test writes this page on a machine with a GPU and NVIDIA's driver:

```sh
CTXBROKER_DRIVER=nvidia CTXB_RUNTIME_TABLE=docs/runtime_functions.md build/release/bin/runtime_functions_test
```

)";

// The words of one answer that another answer does not have in their places.
std::string different_words(const std::string& answer, const std::string& other) {
  std::istringstream words(answer), others(other);
  std::string all;
  for (std::string word, counterpart; words >> word;) {
    if (!(others >> counterpart)) counterpart.clear();
    if (word != counterpart) all += (all.empty() ? "" : " ") + word;
  }
  return all.empty() ? "the same, and no more" : all;
}

std::string answer_of(const std::string& place, const std::string& mode, const std::string& name) {
  const auto& answers = functions_in(place, mode).answers;
  const auto found = answers.find(name);
  return found == answers.end() ? "not run" : found->second;
}

std::string cell(const LeasePlace& place, const std::string& name) {
  std::string text;
  for (const std::string& mode : link_modes) {
    const std::string alone = answer_of(bare, mode, name),
                      leased = answer_of(place.name, mode, name);
    const std::string words = alone == leased ? "as alone"
                                              : "`" + different_words(leased, alone) + "` for `" +
                                                    different_words(alone, leased) + "`";
    if (text.empty()) {
      text = words;
    } else if (text != words) {
      text += "; " + mode + " library: " + words;
    }
  }
  return text;
}

std::string reason_of(const std::string& name) {
  std::string all;
  for (const AllowedDifference& one : allowed_differences())
    if (name == one.function) all += (all.empty() ? "" : " ") + std::string(one.why);
  return all.empty() ? "UNEXPECTED" : all;
}

bool differs(const std::string& name) {
  for (const LeasePlace& place : lease_places())
    if (cell(place, name) != "as alone") return true;
  return false;
}

}  // namespace

std::string runtime_function_page() {
  const std::vector<std::string>& names = functions_in(bare, link_modes.front()).names;
  std::ostringstream rows, equal;
  std::size_t different = 0;
  for (const std::string& name : names) {
    if (!differs(name)) {
      equal << (equal.tellp() > 0 ? ", " : "") << '`' << name << '`';
      continue;
    }
    ++different;
    rows << "| `" << name << '`';
    for (const LeasePlace& place : lease_places()) rows << " | " << cell(place, name);
    rows << " | " << reason_of(name) << " |\n";
  }
  std::ostringstream page;
  page << introduction << "## Results\n\nMeasured on "
       << functions_in(lease_places().front().name, link_modes.front()).device << ". Of "
       << names.size() << " functions, " << names.size() - different
       << " give the same results in all leases as in a bare process, and " << different
       << " differ.\n\n| function";
  for (const LeasePlace& place : lease_places()) page << " | " << place.name;
  page << " | why |\n|---|---|---|---|---|---|\n"
       << rows.str() << "\n## The functions that give the same results\n\n"
       << equal.str() << ".\n";
  return page.str();
}

}  // namespace ctxbroker
