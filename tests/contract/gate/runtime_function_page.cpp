// SPDX-License-Identifier: Apache-2.0
// Writes docs/runtime_functions.md.
#include <algorithm>
#include <sstream>

#include "runtime_functions.hpp"

namespace ctxbroker {
namespace {

constexpr const char* introduction = R"(# The runtime library in a lease

This page is for authors of plug-ins on CUDA's runtime library. It says which functions of that library give a plug-in other
results than they give a program that has the process to itself, why, and what you do instead. [A plug-in on the runtime
API](runtime_plugins.md) says how to write such a plug-in.

)";

constexpr const char* meaning = R"(What this means for you:

- Memory, copies, kernels, streams and events of your own, graphs, textures and modules work as in a program of your own. So do
  the errors that these functions return.
- In a green lease, which is what most plug-ins get, the default stream and your streams do not wait for each other, and there
  is no default stream for each thread. Code that works in streams of its own, or in the job's, does not notice.
- What belongs to the whole device or the whole process (its limits, a reset, the graphs' memory, callbacks of the driver) is
  not yours to change.
- In a private lease, the runtime library itself refuses flags of the device and access to peers. The driver's functions take
  them.

## What differs

The third and the fourth column have only those parts of the results that differ, and at most three of them (only the
statuses where one row has several functions). A name with a value is a result of the call, or what a later question returns
(`now=`, `after=`). `green` is a green lease of the whole device, and `green:16` one with at least 16 multiprocessors of its
own.

)";

constexpr const char* end = R"(
## Functions that succeed and do less

These functions give the same results as in a program of your own, but what they would change belongs to others too:

| function | lease | what it does |
|---|---|---|
| `cudaProfilerStart`, `cudaProfilerStop` | all | nothing. Only the host starts and ends the profile of its process |
| `cudaDeviceGraphMemTrim` | all | nothing. The memory that graphs keep is that of all plug-ins |
| `cudaCtxResetPersistingL2Cache`, `cudaDeviceSetSharedMemConfig` | shared, green | nothing. In a private lease they work |
| `cudaSetDeviceFlags`, `cudaInitDevice`, `cudaDeviceSetCacheConfig` | shared, green | you read back what you have set, and nothing follows from it |

## How it is measured

A test calls each function that `cuda_runtime_api.h` and `cuda_profiler_api.h` of the CUDA Toolkit declare, in a set-up in which
it has something to do. It does so in a process without a broker, and as a tenant in each kind of lease, with the gate, with
the static and with the shared runtime library. Then it compares the status, the results, the error that is left, the strikes, and
the state of the work on the device. Functions for OpenGL, EGL, VDPAU, Direct3D and Vulkan are not called. Nothing but such an API
makes an external semaphore or a graphics resource, so their functions get none. A difference that the table does not explain is a
failure of the test.

The test writes this page on a machine with a GPU and NVIDIA's driver:

```sh
CTXBROKER_DRIVER=nvidia CTXB_RUNTIME_TABLE=docs/runtime_functions.md build/release/bin/runtime_functions_test
```

## The functions that give the same results

)";

using Parts = std::vector<DifferentPart>;

std::vector<std::string> words_of(const std::string& answer) {
  std::istringstream stream(answer);
  std::vector<std::string> all;
  for (std::string word; stream >> word;) all.push_back(word);
  return all;
}

bool is_status(const DifferentPart& part) {
  return part.leased.rfind("cuda", 0) == 0;
}

void add_once(Parts& parts, const DifferentPart& part) {
  if (std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
}

std::string answer_of(const std::string& place, const std::string& mode, const std::string& name) {
  const auto& answers = functions_in(place, mode).answers;
  const auto found = answers.find(name);
  return found == answers.end() ? "not run" : found->second;
}

Parts parts_of(const LeasePlace& place, const std::string& mode, const std::string& name) {
  return different_parts(answer_of(place.name, mode, name), answer_of(bare, mode, name));
}

// Functions that differ in the same leases for the same reason.
struct Row {
  std::vector<std::string> functions;
  std::string leases, why;
  Parts parts;
};

constexpr const char* unexpected = "UNEXPECTED: a mistake of the broker, or of this table";

std::string reason_of(const std::string& name, unsigned places) {
  std::string all;
  for (const AllowedDifference& one : allowed_differences()) {
    if (name == one.function && (one.places & places) != 0) {
      all += (all.empty() ? "" : " ") + std::string(one.why);
    }
  }
  return all.empty() ? unexpected : all;
}

// The leases, and runtime libraries, in which the function has these parts.
struct Difference {
  Parts parts;
  std::string leases;
  unsigned places = 0;
};

std::vector<Difference> differences_of(const std::string& name) {
  std::vector<Difference> all;
  const auto add = [&](const Parts& parts, const LeasePlace& place, const std::string& library) {
    if (parts.empty()) return;
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const Difference& one) { return one.parts == parts; });
    if (found == all.end()) found = all.insert(all.end(), Difference{parts, "", 0});
    found->leases += (found->leases.empty() ? "" : ", ") + (place.name + library);
    found->places |= place.bit;
  };
  for (const LeasePlace& place : lease_places()) {
    const Parts first = parts_of(place, link_modes.front(), name),
                second = parts_of(place, link_modes.back(), name);
    add(first, place, first == second ? "" : " (" + link_modes.front() + " library)");
    if (first != second) add(second, place, " (" + link_modes.back() + " library)");
  }
  std::string everywhere;
  for (const LeasePlace& place : lease_places()) {
    everywhere += (everywhere.empty() ? "" : ", ") + std::string(place.name);
  }
  for (Difference& one : all) {
    if (one.leases == everywhere) one.leases = "all";
  }
  return all;
}

std::string quoted(const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& one : all) text += (text.empty() ? "`" : ", `") + one + '`';
  return text;
}

std::string cell(const Parts& parts, std::string DifferentPart::*side) {
  constexpr std::size_t most = 3;
  std::vector<std::string> shown;
  for (const DifferentPart& part : parts) {
    if (std::find(shown.begin(), shown.end(), part.*side) != shown.end()) continue;
    if (shown.size() == most) return quoted(shown) + ", ...";
    shown.push_back(part.*side);
  }
  return quoted(shown);
}

std::vector<Row> rows_of(const std::vector<std::string>& names) {
  std::vector<Row> rows;
  for (const std::string& name : names) {
    for (const Difference& one : differences_of(name)) {
      const std::string why = reason_of(name, one.places);
      auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
        return why != unexpected && other.why == why && other.leases == one.leases;
      });
      if (row == rows.end()) row = rows.insert(rows.end(), Row{{}, one.leases, why, {}});
      row->functions.push_back(name);
      for (const DifferentPart& part : one.parts) add_once(row->parts, part);
    }
  }
  for (Row& row : rows) {  // the results of several functions say nothing together
    if (row.functions.size() > 1 && std::any_of(row.parts.begin(), row.parts.end(), is_status)) {
      std::erase_if(row.parts, [](const DifferentPart& part) { return !is_status(part); });
    }
  }
  std::stable_partition(rows.begin(), rows.end(),
                        [](const Row& row) { return row.why == unexpected; });
  return rows;
}

}  // namespace

std::vector<DifferentPart> different_parts(const std::string& leased, const std::string& alone) {
  if (leased == alone) return {};
  const auto is_whole = [](const std::string& answer) {
    return answer.find("left=") != std::string::npos;
  };
  if (!is_whole(leased) || !is_whole(alone)) return {{leased, alone}};
  const std::vector<std::string> own = words_of(leased), other = words_of(alone);
  Parts parts, left;
  for (std::size_t i = 0; i < std::max(own.size(), other.size()); ++i) {
    const DifferentPart part{i < own.size() ? own[i] : "nothing",
                             i < other.size() ? other[i] : "nothing"};
    if (part.leased == part.alone) continue;
    const bool is_left = part.leased.rfind("left=", 0) == 0 || part.alone.rfind("left=", 0) == 0;
    add_once(is_left ? left : parts, part);
  }
  std::stable_partition(parts.begin(), parts.end(), is_status);
  return parts.empty() ? left : parts;
}

std::string runtime_function_page() {
  const std::vector<std::string>& names = functions_in(bare, link_modes.front()).names;
  std::vector<std::string> equal, different;
  std::string counts;
  for (const std::string& name : names) {
    (differences_of(name).empty() ? equal : different).push_back(name);
  }
  for (const LeasePlace& place : lease_places()) {
    const auto count = std::count_if(names.begin(), names.end(), [&](const std::string& name) {
      return std::any_of(link_modes.begin(), link_modes.end(), [&](const std::string& mode) {
        return !parts_of(place, mode, name).empty();
      });
    });
    counts += (counts.empty() ? "" : ", ") + std::to_string(count) + " in " + place.name;
  }
  std::ostringstream page;
  page << introduction << "Of " << names.size() << " functions, " << equal.size()
       << " give the same results in every lease as in a process of their own, and "
       << different.size() << " differ somewhere (" << counts << "). Measured on "
       << functions_in(lease_places().front().name, link_modes.front()).device << ".\n\n"
       << meaning
       << "| function | lease | in the lease | alone | why, and what to do |\n"
          "|---|---|---|---|---|\n";
  for (const Row& row : rows_of(different)) {
    page << "| " << quoted(row.functions) << " | " << row.leases << " | "
         << cell(row.parts, &DifferentPart::leased) << " | "
         << cell(row.parts, &DifferentPart::alone) << " | " << row.why << " |\n";
  }
  page << end << quoted(equal) << ".\n";
  return page.str();
}

}  // namespace ctxbroker
