#include "module/linker.hpp"

#include <elf.h>

#include <cstring>
#include <string_view>

#include "ctxbroker/error.hpp"
#include "image/image.hpp"
#include "module/image_error.hpp"
#include "module/jit_call.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::uint16_t cuda_machine = 190;  // e_machine of cubins

constexpr std::string_view archive_magic = "!<arch>\n";

// How the driver's linker has to read it. What nobody knows is given to it as PTX, which it refuses
// with words.
CUjitInputType type_of(std::span<const std::byte> bytes) noexcept {
  const image::Format format = image::format_of(bytes);
  if (format == image::Format::fatbin) return CU_JIT_INPUT_FATBINARY;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with(archive_magic)) return CU_JIT_INPUT_LIBRARY;
  Elf64_Ehdr header{};
  if (format == image::Format::elf && bytes.size() >= sizeof header) {
    std::memcpy(&header, bytes.data(), sizeof header);
    return header.e_machine == cuda_machine ? CU_JIT_INPUT_CUBIN : CU_JIT_INPUT_OBJECT;
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

}  // namespace

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
  const auto must = [&](CUresult status, const char* function, const StoredImage* image,
                        const std::string& what) {
    if (lease.report_status(status) == CUDA_SUCCESS) return;
    throw image_error(lease, image, {status, function, what, call.error(), call.info()});
  };
  Link link(lease.table(), call);
  must(link.status(), "cuLinkCreate_v2", nullptr, who);
  for (const LinkPart& part : parts) {
    const std::string name = "part \"" + part.name + "\" of " + who;
    // Checked and kept as any image; a host object or library is the driver's to read.
    const auto image = store_image(part.bytes, name);
    // PTX with its ending 0.
    const std::span<const std::byte> bytes =
        image->text().empty() ? part.bytes
                              : std::span(image->bytes).first(image->text().size() + 1);
    must(link.add(type_of(part.bytes), bytes, part.name.c_str()), "cuLinkAddData_v2", image.get(),
         name);
  }
  std::span<const std::byte> made;
  must(link.complete(made), "cuLinkComplete", nullptr, who);
  return store_image(made, who);
}

}  // namespace ctxbroker::detail
