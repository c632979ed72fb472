#include "api/jit.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "api/device.hpp"
#include "image/image.hpp"
#include "ptx/parser.hpp"

namespace ctxbroker::software {
namespace {

// The newest PTX version that a supported toolkit writes: those of CUDA 13 are 9.0 and up.
constexpr int newest_ptx_major = 9;

struct Version {
  int major = 0;
  std::string text;      // "9.0"
  std::size_t line = 1;  // where ".version" stands
};

// The number after the first ".version" that no comment line hides.
Version find_version(std::string_view ptx) {
  std::size_t line = 1;
  while (!ptx.empty()) {
    std::size_t end = std::min(ptx.find('\n'), ptx.size());
    std::string_view row = ptx.substr(0, end);
    row.remove_prefix(std::min(row.find_first_not_of(" \t\r"), row.size()));
    if (row.starts_with(".version")) {
      row.remove_prefix(std::string_view(".version").size());
      row.remove_prefix(std::min(row.find_first_not_of(" \t"), row.size()));
      Version version;
      version.text = row.substr(0, row.find_first_of(" \t\r/"));
      std::from_chars(row.data(), row.data() + row.size(), version.major);
      version.line = line;
      return version;
    }
    ptx.remove_prefix(std::min(end + 1, ptx.size()));
    ++line;
  }
  return {};
}

CUresult status_of(image::Reason reason, bool is_text) {
  switch (reason) {
    case image::Reason::invalid:
      return CUDA_ERROR_INVALID_IMAGE;
    case image::Reason::no_ptx:
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case image::Reason::newer_ptx:
      return is_text ? CUDA_ERROR_INVALID_PTX : CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  return CUDA_ERROR_UNKNOWN;
}

JitResult failed(CUresult status, std::string log) {
  JitResult result;
  result.status = status;
  result.error_log = std::move(log);
  return result;
}

std::string at_line(std::size_t line, const std::string& severity, const std::string& text) {
  return "ptxas application ptx input, line " + std::to_string(line) + "; " + severity + text;
}

std::string describe(const exec::Program& program) {
  std::string text;
  for (const exec::Kernel& kernel : program.kernels)
    text += "software device info: entry function '" + kernel.name +
            "': " + std::to_string(kernel.registers) + " registers, " +
            std::to_string(kernel.static_shared_bytes) + " bytes smem, " +
            std::to_string(kernel.local_bytes) + " bytes lmem, " +
            std::to_string(kernel.parameter_bytes) + " bytes parameters\n";
  return text;
}

}  // namespace

JitResult compile_image(const void* image) {
  std::string ptx;
  try {
    std::size_t size = image::image_size(image);
    ptx = image::extract_ptx({static_cast<const std::byte*>(image), size}, device_limits::compute);
  } catch (const image::ImageError& error) {
    auto first = *static_cast<const unsigned char*>(image);
    bool is_text = std::isprint(first) != 0 || std::isspace(first) != 0;
    return failed(status_of(error.reason(), is_text), std::string("error   : ") + error.what());
  }
  Version version = find_version(ptx);
  if (version.major > newest_ptx_major)
    return failed(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                  at_line(version.line, "fatal   : ",
                          "Unsupported .version " + version.text + "; the newest known is " +
                              std::to_string(newest_ptx_major) + ".x"));
  try {
    JitResult result;
    result.program = exec::compile(ptx);
    result.info_log = describe(*result.program);
    return result;
  } catch (const ptx::SyntaxError& error) {
    return failed(CUDA_ERROR_INVALID_PTX,
                  at_line(error.line(), "error   : ", error.what()) +
                      "\nptxas fatal   : Ptx assembly aborted due to errors");
  }
}

}  // namespace ctxbroker::software
