// SPDX-License-Identifier: Apache-2.0
#include "api/logs.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "api/cuda_api.hpp"
#include "api/entry.hpp"

namespace ctxbroker::software {
namespace {

#if CUDA_VERSION >= 12090
struct Reader {
  CUlogsCallback callback = nullptr;
  void* data = nullptr;
};

// Registration works before cuInit, so the readers cannot live in what cuInit makes. Never
// destroyed: threads log while the process ends.
struct Readers {
  std::shared_mutex mutex;
  std::map<std::uintptr_t, Reader> table;
  std::uintptr_t last = 0;
};

Readers& readers() {
  static Readers& all = *new Readers;
  return all;
}

void tell_readers(const std::string& text) {
  std::vector<Reader> told;
  {
    std::shared_lock lock(readers().mutex);
    for (const auto& [handle, reader] : readers().table) told.push_back(reader);
  }
  for (const Reader& reader : told) {
    std::string copy = text;  // the callback's parameter is a writable string
    reader.callback(reader.data, CU_LOG_LEVEL_ERROR, copy.data(), copy.size());
  }
}
#else
void tell_readers(const std::string&) {}
#endif

void write_file(const std::string& text) {
  const char* name = std::getenv("CUDA_LOG_FILE");
  if (name == nullptr || *name == 0) return;
  std::string line = "[ERROR] " + text + "\n";
  std::string where = name;
  if (where == "stderr" || where == "stdout") {
    std::fputs(line.c_str(), where == "stderr" ? stderr : stdout);
  } else if (std::FILE* file = std::fopen(name, "a")) {
    std::fputs(line.c_str(), file);
    std::fclose(file);
  }
}

}  // namespace

void log_error(const std::string& text) noexcept {
  try {
    write_file(text);
    tell_readers(text);
  } catch (...) {  // a message that cannot be told changes nothing else
  }
}

void refuse(const std::string& what) {
  log_error(what + " is not supported by ctxbroker's software device");
  fail(CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace ctxbroker::software

#if CUDA_VERSION >= 12090
using namespace ctxbroker::software;

CTXB_EXPORT CUresult cuLogsRegisterCallback(CUlogsCallback callback, void* data,
                                            CUlogsCallbackHandle* handle) {
  CTXB_COUNT_CALL();
  return at_any_time([&] {
    check_value(callback != nullptr);
    std::unique_lock lock(readers().mutex);
    std::uintptr_t key = ++readers().last;
    readers().table[key] = {callback, data};
    if (handle != nullptr) *handle = reinterpret_cast<CUlogsCallbackHandle>(key);
  });
}

CTXB_EXPORT CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle handle) {
  CTXB_COUNT_CALL();
  return at_any_time([&] {
    std::unique_lock lock(readers().mutex);
    check_value(readers().table.erase(reinterpret_cast<std::uintptr_t>(handle)) == 1);
  });
}
#endif
