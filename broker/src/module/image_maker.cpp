// SPDX-License-Identifier: Apache-2.0
#include "module/image_maker.hpp"

#include <sys/stat.h>

#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/error.hpp"
#include "image/elf.hpp"
#include "image/image.hpp"
#include "limits/limits.hpp"
#include "module/image_error.hpp"
#include "module/jit_call.hpp"
#include "module/runtime_compiler.hpp"
#include "observe/regular_file.hpp"
#include "observe/span.hpp"

namespace ctxbroker::detail {
namespace {

std::string name_of(const ModuleImage& module) {
  return "module \"" + module.name + "\"";
}

std::string read_file(const std::filesystem::path& path, const std::string& who) {
  FileReading reading = read_regular_file(path, limits::module_file.most);
  if (reading.trouble.empty() && !reading.bytes.empty()) return std::move(reading.bytes);
  if (reading.trouble.empty()) reading.trouble = "is empty; build or copy it again";
  if (reading.is_too_large) reading.trouble = "has " + limits::beyond(limits::module_file);
  throw Error(ErrorKind::kernel_image,
              who + " cannot be loaded: its file \"" + path.string() + "\" " + reading.trouble);
}

// Static data of a library: damaged on the way from whoever built it, or overwritten in memory.
void check_whole(std::span<const std::byte> bytes, std::uint32_t checksum, const std::string& who) {
  if (checksum == 0) return;
  const std::uint32_t found = image::checksum_of(bytes);
  if (found == checksum) return;
  throw Error(ErrorKind::kernel_image,
              who + " cannot be loaded: the checksum of its " + std::to_string(bytes.size()) +
                  " bytes is " + std::to_string(found) + " and was " + std::to_string(checksum) +
                  " when the plug-in was built: its library is damaged, or something has written "
                  "into it; install the plug-in again");
}

std::shared_ptr<const StoredImage> compile(const Lease& lease, const ModuleImage& module,
                                           const CudaSource& source) {
  const ScopedSpan span(SpanCategory::load, "compile", source.name.c_str(), lease.tenant().id,
                        source.text.size());
  const std::string ptx =
      compile_cuda(source, capability_of(lease), lease.driver().info.version, name_of(module));
  return store_image(std::as_bytes(std::span(ptx)), name_of(module));
}

std::shared_ptr<const StoredImage> from_file(const Lease& lease, const ModuleImage& module) {
  const std::string bytes = read_file(module.file, name_of(module));
  if (module.file.extension() != ".cu")
    return store_image(std::as_bytes(std::span(bytes)), name_of(module));
  CudaSource source;
  source.name = module.file.string();
  source.text = bytes;
  // By its name the compiler finds what it includes from its own folder.
  if (module.source) source.options = module.source->options;
  source.options.insert(source.options.end(), module.file_options.begin(),
                        module.file_options.end());
  return compile(lease, module, source);
}

struct LinkPart {
  std::string name;
  std::span<const std::byte> bytes;
};

constexpr std::uint16_t cuda_machine = 190;  // e_machine of cubins

constexpr std::string_view archive_magic = "!<arch>\n";

// Returns the type of the code for the driver's linker. Code of an unknown format is passed as PTX,
// which the linker refuses with a message.
CUjitInputType type_of(std::span<const std::byte> bytes) noexcept {
  const image::Format format = image::format_of(bytes);
  if (format == image::Format::fatbin) return CU_JIT_INPUT_FATBINARY;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with(archive_magic)) return CU_JIT_INPUT_LIBRARY;
  if (const auto header = image::ElfInMemory(bytes).header()) {
    return header->e_machine == cuda_machine ? CU_JIT_INPUT_CUBIN : CU_JIT_INPUT_OBJECT;
  }
  return CU_JIT_INPUT_PTX;
}

// The state of one link; with its end goes the image it made.
class Link {
 public:
  Link(const DriverTable& driver, JitCall& call) : driver_(driver) {
    status_ = driver_.link_create(call.count(), call.names(), call.values(), &state_);
  }
  ~Link() {
    if (state_ != nullptr) driver_.link_destroy(state_);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  CUresult status() const noexcept { return status_; }
  CUresult add(CUjitInputType type, std::span<const std::byte> bytes, const char* name) {
    // The driver does not write there.
    return driver_.link_add_data(state_, type, const_cast<std::byte*>(bytes.data()), bytes.size(),
                                 name, 0, nullptr, nullptr);
  }
  CUresult complete(std::span<const std::byte>& image) {
    void* made = nullptr;
    std::size_t bytes = 0;
    const CUresult status = driver_.link_complete(state_, &made, &bytes);
    image = {static_cast<const std::byte*>(made), status == CUDA_SUCCESS ? bytes : 0};
    return status;
  }

 private:
  const DriverTable& driver_;
  CUlinkState state_ = nullptr;
  CUresult status_ = CUDA_SUCCESS;
};

bool can_link(const DriverTable& driver) noexcept {
  return driver.link_create != nullptr && driver.link_add_data != nullptr &&
         driver.link_complete != nullptr && driver.link_destroy != nullptr;
}

// Links the parts in their order for the lease's device. `who` names the module in error texts.
std::shared_ptr<const StoredImage> link_parts(Lease& lease, const std::vector<LinkPart>& parts,
                                              const JitOptions& options, const std::string& who) {
  if (!can_link(lease.table())) {
    throw Error(ErrorKind::kernel_image,
                who +
                    " cannot be loaded: it has to be linked, and this driver has no linker; "
                    "link its parts when the plug-in is built (nvcc -dlink)");
  }
  // Outlives the state, which writes into its logs to the end.
  JitCall call(options, lease.driver().info.version);
  const auto check_link = [&](CUresult status, const char* function, const StoredImage* image,
                              const std::string& what) {
    if (lease.report_status(status) == CUDA_SUCCESS) return;
    throw image_error(lease, image, {status, function, what, call.error(), call.info()});
  };
  Link link(lease.table(), call);
  check_link(link.status(), "cuLinkCreate_v2", nullptr, who);
  for (const LinkPart& part : parts) {
    const std::string name = "part \"" + part.name + "\" of " + who;
    // Checked and kept as any image; a host object or library is the driver's to read.
    const auto image = store_image(part.bytes, name);
    // PTX with its ending 0.
    const std::span<const std::byte> bytes =
        image->text().empty() ? part.bytes
                              : std::span(image->bytes).first(image->text().size() + 1);
    check_link(link.add(type_of(part.bytes), bytes, part.name.c_str()), "cuLinkAddData_v2",
               image.get(), name);
  }
  std::span<const std::byte> made;
  check_link(link.complete(made), "cuLinkComplete", nullptr, who);
  return store_image(made, who);
}

std::shared_ptr<const StoredImage> link(Lease& lease, const ModuleImage& module) {
  std::deque<std::string> files;  // stay while the parts point to them
  std::vector<LinkPart> parts;
  for (const ModulePart& part : module.parts) {
    const std::string who = "part \"" + part.name + "\" of " + name_of(module);
    if (part.data != nullptr) {
      check_whole({part.data, part.size}, part.checksum, who);
      parts.push_back({part.name, {part.data, part.size}});
    } else {
      files.push_back(read_file(part.file, who));
      parts.push_back({part.name, std::as_bytes(std::span(files.back()))});
    }
  }
  const ScopedSpan span(SpanCategory::load, "link", module.name.c_str(), lease.tenant().id,
                        parts.size());
  return link_parts(lease, parts, module.jit, name_of(module));
}

std::shared_ptr<const StoredImage> built_in(Lease& lease, const ModuleImage& module) {
  if (module.source) return compile(lease, module, *module.source);
  if (!module.parts.empty()) return link(lease, module);
  if (module.data != nullptr) {
    check_whole({module.data, module.size}, module.checksum, name_of(module));
    return store_image({module.data, module.size}, name_of(module));
  }
  throw Error(ErrorKind::kernel_image,
              name_of(module) + " cannot be loaded: its file \"" + module.file.string() +
                  "\" is not there, and the plug-in has nothing else for it");
}

}  // namespace

int capability_of(const Lease& lease) {
  const DeviceInfo& info = lease.driver().devices[static_cast<std::size_t>(lease.device_ordinal())];
  return 10 * info.compute_major + info.compute_minor;
}

FileStamp stamp_of(const std::filesystem::path& file) noexcept {
  struct stat found {};
  if (file.empty() || stat(file.c_str(), &found) != 0) return {};
  constexpr std::int64_t second = 1000000000;  // ns
  return {true, found.st_mtim.tv_sec * second + found.st_mtim.tv_nsec,
          static_cast<std::uint64_t>(found.st_size), static_cast<std::uint64_t>(found.st_ino)};
}

std::shared_ptr<const StoredImage> ImageMaker::make(Lease& lease, const ModuleImage& module) {
  const std::lock_guard lock(mutex_);
  const FileStamp stamp = stamp_of(module.file);
  Made& made = made_[capability_of(lease)];
  if (made.image != nullptr && made.stamp == stamp) return made.image;
  auto image = stamp.there ? from_file(lease, module) : built_in(lease, module);
  made = {stamp, image};
  return image;
}

}  // namespace ctxbroker::detail
