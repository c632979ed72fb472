#include "observe/whole_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw Error(ErrorKind::output_file, "file \"" + path.string() + "\" cannot be written: " +
                                          std::generic_category().message(error));
}

// The temporary file. Its destructor removes the file unless put_in_place has renamed it.
class PartFile {
 public:
  explicit PartFile(const std::filesystem::path& path)
      : path_(path), name_(path.string() + ".XXXXXX") {
    file_ = ::mkstemp(name_.data());
    if (file_ < 0) fail(path_, errno);
    const mode_t mask = ::umask(0);
    ::umask(mask);
    ::fchmod(file_, 0666 & ~mask);  // mkstemp makes it the owner's alone
  }
  ~PartFile() {
    if (file_ >= 0) ::close(file_);
    if (!placed_) ::unlink(name_.c_str());
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t done = ::write(file_, text.data(), text.size());
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail(path_, done < 0 ? errno : EIO);
      text.remove_prefix(static_cast<std::size_t>(done));
    }
  }

  void put_in_place() {
    const int closed = ::close(file_);
    file_ = -1;
    if (closed != 0) fail(path_, errno);
    if (::rename(name_.c_str(), path_.c_str()) != 0) fail(path_, errno);
    placed_ = true;
  }

 private:
  const std::filesystem::path& path_;
  std::string name_;
  int file_ = -1;
  bool placed_ = false;
};

}  // namespace

void write_whole_file(
    const std::filesystem::path& path,
    const std::function<void(const std::function<void(std::string_view)>&)>& produce) {
  PartFile part(path);
  produce([&](std::string_view text) { part.write(text); });
  part.put_in_place();
}

}  // namespace ctxbroker::detail
