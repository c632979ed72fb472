// SPDX-License-Identifier: Apache-2.0
// Good images cut off and with bits turned over: the reader and the driver take them or refuse them
// with a clear status, and neither crashes, hangs or keeps anything. 2,000 of them, or as many as
// CTXB_DAMAGED_IMAGES says. On NVIDIA's driver they are loaded in child processes, a batch in each:
// no test can end a driver that crashed. There it gets what the reader accepts, as from the broker,
// and of the rest one in twenty, to see what the reader is for.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "driver.hpp"
#include "image/image.hpp"
#include "image/linked.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view good_ptx, good_plain_fatbin, good_lz4_fatbin, good_zstd_fatbin,
    good_cubin, foreign_fatbin, foreign_cubin, ptx_fatbin;
}

namespace ctxbroker::test {
namespace {

constexpr unsigned batch = 250;
constexpr unsigned refused_but_tried = 20;  // one in so many
constexpr unsigned most_children = 8;       // at once
// The driver's compiler takes a tenth of one for what is good; what the reader refuses may keep it
// for ever, and is not waited for so long.
constexpr unsigned seconds_for_an_image = 20, seconds_for_a_refused_one = 2;
constexpr std::size_t most_kept = std::size_t{64} << 20;  // bytes of device memory after a batch

struct Good {
  const char* name;
  std::string_view bytes;
};

constexpr unsigned kinds = 6;

std::array<Good, kinds> good_images() {
  // For NVIDIA's driver no image at all.
  static const std::vector<std::byte> linked = image::write_linked(
      {{"small.ptx", std::string(fixtures::good_ptx)},
       {"other.ptx", ".version 7.0\n.target sm_70\n.address_size 64\n.entry k() { ret; }"}});
  return {{{"PTX", fixtures::good_ptx},
           {"plain fatbin", fixtures::good_plain_fatbin},
           {"lz4 fatbin", fixtures::good_lz4_fatbin},
           {"zstd fatbin", fixtures::good_zstd_fatbin},
           {"cubin", fixtures::good_cubin},
           {"linked image", {reinterpret_cast<const char*>(linked.data()), linked.size()}}}};
}

unsigned case_count() {
  const char* asked = std::getenv("CTXB_DAMAGED_IMAGES");
  return asked == nullptr ? 2000U : static_cast<unsigned>(std::strtoul(asked, nullptr, 10));
}

std::string name_of(unsigned number) {
  return "case " + std::to_string(number) + " (" + good_images()[number % kinds].name +
         (number / kinds % 2 == 0 ? ", cut off)" : ", bits turned over)");
}

// The same for a number every time. Behind what is left follow zeros: a driver is not told where an
// image ends, and reads on to where a header says it does.
std::string damaged(unsigned number) {
  std::string image(good_images()[number % kinds].bytes);
  std::mt19937 random(number);
  if (number / kinds % 2 == 0) {
    const std::size_t keep = random() % image.size();
    std::fill(image.begin() + static_cast<std::ptrdiff_t>(keep), image.end(), '\0');
  } else {
    for (unsigned bits = 1 + random() % 8; bits > 0; --bits) {
      char& byte = image[random() % image.size()];
      byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1U << (random() % 8)));
    }
  }
  return image;
}

// Returns whether the reader accepts the image. A cut-off image is passed without the zeros behind
// it.
bool reader_accepts(unsigned number, const std::string& image) {
  std::size_t size = image.size();
  if (number / kinds % 2 == 0) {
    std::mt19937 random(number);
    size = random() % image.size();
  }
  const auto copy = std::make_unique<std::byte[]>(size);  // ends where the image ends
  std::memcpy(copy.get(), image.data(), size);
  try {
    image::describe({copy.get(), size});
    return true;
  } catch (const image::ImageError& error) {
    return *error.what() == '\0';
  }
}

// Damage that the checksum does not show, which a plug-in's descriptor has of an image that is
// built in. The broker looks at that before the reader does.
bool passes_the_checksum(unsigned number, const std::string& image) {
  const auto checksum = [](std::string_view bytes) {
    return image::checksum_of(std::as_bytes(std::span(bytes.data(), bytes.size())));
  };
  const std::string_view good = good_images()[number % kinds].bytes;
  return image != good && checksum(image) == checksum(good);
}

// A header may say that the image goes on behind the memory that holds it. Nobody can load that
// safely: the broker never hands it on.
bool stays_inside(const std::string& image) {
  try {
    return image::image_size(image.data()) <= image.size();
  } catch (const image::ImageError&) {
    return true;
  }
}

// The children's report, in memory that all processes share.
struct Report {
  struct Child {
    std::atomic<unsigned> current = 0;   // case that is being tried
    std::atomic<bool> accepted = false;  // by the reader, which stands before the driver
  };
  std::array<Child, most_children> children = {};
  std::atomic<unsigned> loaded = 0, refused_by_reader = 0, not_tried = 0, unnoticed = 0;
  std::array<std::atomic<unsigned>, 1000> statuses = {};
  std::atomic<unsigned> excused_unknown = 0;  // CUDA_ERROR_UNKNOWN, and not in `statuses`
  std::atomic<std::size_t> kept = 0;          // bytes of device memory, the most after a batch
};

// Returns whether the damage may be in machine code, and the reader has accepted the image. Only
// the driver reads machine code, so the reader cannot find such damage.
bool is_damaged_machine_code(unsigned number, bool accepted) {
  return accepted && number / kinds % 2 != 0 && number % kinds != 0;
}

void try_cases(const Driver& d, unsigned from, unsigned to, Report& report, unsigned child = 0) {
  Report::Child& own = report.children[child];
  std::size_t free_before = 0, free_after = 0, total = 0;
  d.cuMemGetInfo_v2(&free_before, &total);
  for (unsigned number = from; number < to; ++number) {
    own.current = number;
    std::string image = damaged(number);
    own.accepted = reader_accepts(number, image);
    if (!own.accepted) ++report.refused_by_reader;
    if (passes_the_checksum(number, image)) ++report.unnoticed;
    const bool asked = own.accepted || d.is_software || number / kinds % refused_but_tried == 0;
    if (!asked || !stays_inside(image)) {
      ++report.not_tried;
      continue;
    }
    image.push_back('\0');
    if (!d.is_software) alarm(own.accepted ? seconds_for_an_image : seconds_for_a_refused_one);
    CUmodule module = nullptr;
    const CUresult status = d.cuModuleLoadData(&module, image.data());
    // NVIDIA's driver, of what the broker does not hand to it, or that no reader can know.
    const bool excused = status == CUDA_ERROR_UNKNOWN && !d.is_software &&
                         (!own.accepted || is_damaged_machine_code(number, own.accepted));
    ++(excused ? report.excused_unknown : report.statuses[static_cast<std::size_t>(status) % 1000]);
    if (status != CUDA_SUCCESS) continue;
    ++report.loaded;
    ++report.statuses[static_cast<std::size_t>(d.cuModuleUnload(module)) % 1000];
  }
  d.cuMemGetInfo_v2(&free_after, &total);
  if (free_before > free_after && free_before - free_after > report.kept) {
    report.kept = free_before - free_after;
  }
}

// Returns an image of an architecture that does not exist yet, because today's compilers cannot
// make one.
std::string of_newer_architecture() {
  std::string image(fixtures::ptx_fatbin);
  constexpr std::size_t architecture_at = 16 + 28;  // in the first entry's header
  const std::uint32_t newer = 199;
  std::memcpy(image.data() + architecture_at, &newer, sizeof newer);
  return image;
}

bool enter_a_context(const Driver& d) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  return d.cuInit(0) == CUDA_SUCCESS && d.cuDeviceGet(&device, 0) == CUDA_SUCCESS &&
         d.cuCtxCreate_v2(&context, 0, device) == CUDA_SUCCESS;
}

// In a process of its own, with a driver of its own.
template <typename Work>
pid_t start_child(const Driver& d, const Work& work) {
  std::fflush(nullptr);
  const pid_t process = fork();
  if (process == 0) {
    alarm(10 * seconds_for_an_image);
    if (!enter_a_context(d)) _exit(2);
    work();
    _exit(0);
  }
  return process;
}

struct Cases {
  unsigned from, to;
};

// Counts the children that a signal ended. If the reader has accepted the image, only damaged
// machine code may end a child: only the driver reads machine code, and one bit that was turned
// over there has brought down NVIDIA's driver (580).
struct Ends {
  unsigned machine_code = 0, text = 0;  // what the reader accepts
  unsigned others = 0;
  bool without_driver = false;
};

// Cases in children, so many at once: those behind a case that ends its child go to another.
Ends try_in_children(const Driver& d, Cases all, unsigned most, Report& report) {
  std::vector<Cases> waiting;
  for (unsigned from = all.from; from < all.to; from += batch) {
    waiting.push_back({from, std::min(from + batch, all.to)});
  }
  struct Running {
    pid_t process = 0;  // 0: none
    Cases cases = {};
  };
  std::array<Running, most_children> running = {};
  Ends ends;
  for (;;) {
    bool any = false;
    for (unsigned child = 0; child < most; ++child) {
      if (running[child].process == 0 && !waiting.empty()) {
        const Cases next = waiting.back();
        waiting.pop_back();
        running[child] = {start_child(d, [&] { try_cases(d, next.from, next.to, report, child); }),
                          next};
      }
      any = any || running[child].process != 0;
    }
    if (!any) return ends;
    int status = -1;
    const pid_t ended = waitpid(-1, &status, 0);
    for (unsigned child = 0; child < most_children; ++child) {
      if (running[child].process != ended) continue;
      running[child].process = 0;
      if (WIFEXITED(status)) {
        ends.without_driver = ends.without_driver || WEXITSTATUS(status) != 0;
        continue;
      }
      const Report::Child& last = report.children[child];
      std::printf("the driver %s %d in %s, which the reader %s\n",
                  WTERMSIG(status) == SIGALRM ? "does not come back: signal" : "ended with signal",
                  WTERMSIG(status), name_of(last.current).c_str(),
                  last.accepted ? "accepts" : "refuses");
      ++(!last.accepted                                         ? ends.others
         : is_damaged_machine_code(last.current, last.accepted) ? ends.machine_code
                                                                : ends.text);
      if (last.current + 1 < running[child].cases.to) {
        waiting.push_back({last.current + 1, running[child].cases.to});
      }
    }
  }
}

std::string say(const Report& report) {
  std::string text = std::to_string(report.refused_by_reader) + " refused by the reader, " +
                     std::to_string(report.not_tried) + " that the driver was not asked for, " +
                     std::to_string(report.loaded) + " loaded; statuses:";
  for (std::size_t status = 0; status < report.statuses.size(); ++status) {
    if (report.statuses[status] == 0) continue;
    text += " " + std::to_string(status) + ": " + std::to_string(report.statuses[status]);
  }
  text += "; unknown, and excused: " + std::to_string(report.excused_unknown);
  return text + "; at most " + std::to_string(report.kept >> 10U) + " KiB kept by a batch";
}

class DamagedImages : public ::testing::Test {
 protected:
  void SetUp() override {
    void* memory =
        mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    report = new (memory) Report;
  }
  void TearDown() override { munmap(report, sizeof(Report)); }

  const Driver& d = driver();
  Report* report = nullptr;
};

TEST_F(DamagedImages, DamagedImageIsRefusedOrRunsWithoutACrash) {
  if (!d.missing.empty()) GTEST_SKIP() << d.missing;
  setenv("CUDA_CACHE_DISABLE", "1", 1);  // nothing of this is worth keeping
  const unsigned count = case_count();
  if (d.is_software) {
    ASSERT_TRUE(enter_a_context(d));
    try_cases(d, 0, count, *report);
    EXPECT_EQ(report->kept, 0U);
  } else {
    // The first batch alone: what is kept shows in the device's free memory, which all share.
    const unsigned alone = std::min(batch, count);
    const Ends first = try_in_children(d, {0, alone}, 1, *report);
    const std::size_t kept = report->kept;
    const Ends ends = try_in_children(d, {alone, count}, most_children, *report);
    report->kept = kept;
    ASSERT_FALSE(first.without_driver || ends.without_driver) << "no CUDA in a child";
    std::printf("%u ends in what the reader refuses, %u in machine code that it accepts\n",
                first.others + ends.others, first.machine_code + ends.machine_code);
    EXPECT_EQ(first.text + ends.text, 0U);
    EXPECT_LE(report->kept, most_kept);
  }
  std::printf("%u damaged images: %s\n", count, say(*report).c_str());
  // Clear ones: that the image is wrong, or what in it; not that something went wrong.
  const std::set<std::size_t> clear = {CUDA_SUCCESS,
                                       CUDA_ERROR_INVALID_VALUE,
                                       CUDA_ERROR_OUT_OF_MEMORY,
                                       CUDA_ERROR_INVALID_IMAGE,
                                       CUDA_ERROR_NO_BINARY_FOR_GPU,
                                       CUDA_ERROR_INVALID_PTX,
                                       CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
                                       CUDA_ERROR_INVALID_SOURCE,
                                       CUDA_ERROR_NOT_FOUND};
  for (std::size_t status = 0; status < report->statuses.size(); ++status) {
    if (clear.contains(status)) continue;
    EXPECT_EQ(report->statuses[status], 0U) << "status " << status;
  }
  EXPECT_EQ(report->unnoticed, 0U) << "by the checksum";
  // Otherwise the damage would be none, or would be all that is seen.
  EXPECT_GT(report->loaded, 0U);
  EXPECT_GT(report->refused_by_reader, count / 4);
}

// Whole images that cannot run here, each with a status of its own.
TEST_F(DamagedImages, ForeignImageFailsWithItsOwnStatus) {
  if (!d.missing.empty()) GTEST_SKIP() << d.missing;
  const std::string ptx_tail = "\n.address_size 64\n.visible .entry k() { ret; }";
  const struct {
    const char* what;
    std::string image;
    CUresult status;
  } cases[] = {
      {"PTX of a newer version", ".version 99.0\n.target sm_70" + ptx_tail,
       CUDA_ERROR_UNSUPPORTED_PTX_VERSION},
      {"PTX for a newer architecture", ".version 7.0\n.target sm_999" + ptx_tail,
       CUDA_ERROR_INVALID_PTX},
      {"PTX with a mistake in it", ".version 7.0\n.target sm_70\n.address_size 64\n.entry k( {",
       CUDA_ERROR_INVALID_PTX},
      {"a cubin of another architecture", std::string(fixtures::foreign_cubin),
       CUDA_ERROR_NO_BINARY_FOR_GPU},
      {"a fatbin with machine code of another architecture alone",
       std::string(fixtures::foreign_fatbin), CUDA_ERROR_NO_BINARY_FOR_GPU},
      {"a fatbin with newer PTX alone", of_newer_architecture(), CUDA_ERROR_NO_BINARY_FOR_GPU},
      {"no image", "GIF89a, at least", CUDA_ERROR_INVALID_IMAGE},
      {"a good one", std::string(fixtures::good_zstd_fatbin), CUDA_SUCCESS},
  };
  const auto load_all = [&] {
    for (std::size_t i = 0; i < std::size(cases); ++i) {
      CUmodule module = nullptr;
      report->statuses[i] = d.cuModuleLoadData(&module, cases[i].image.c_str());
    }
  };
  if (d.is_software) {
    ASSERT_TRUE(enter_a_context(d));
    load_all();
  } else {
    const pid_t child = start_child(d, load_all);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    EXPECT_EQ(report->statuses[i], static_cast<unsigned>(cases[i].status)) << cases[i].what;
  }
}

TEST_F(DamagedImages, UndamagedImageIsRead) {
  for (const Good& good : good_images()) {
    EXPECT_NO_THROW(image::describe(std::as_bytes(std::span(good.bytes.data(), good.bytes.size()))))
        << good.name;
  }
}

// A file has a size, so its header is not believed to go on behind that. NVIDIA's driver is not
// asked: no test can end a driver that crashed.
class ImageFiles : public DamagedImages {
 protected:
  void SetUp() override {
    DamagedImages::SetUp();
    if (!d.missing.empty()) GTEST_SKIP() << d.missing;
    if (!d.is_software) GTEST_SKIP() << "only for the software device";
    ASSERT_TRUE(enter_a_context(d));
  }
  void TearDown() override {
    std::filesystem::remove(file);
    DamagedImages::TearDown();
  }

  // Loads a file of these bytes with each function that takes one.
  void expect_all(const std::string& bytes, CUresult expected, const std::string& what) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    CUmodule module = nullptr;
    EXPECT_EQ(d.cuModuleLoad(&module, file.c_str()), expected) << what;
    if (module != nullptr) {
      EXPECT_EQ(d.cuModuleUnload(module), CUDA_SUCCESS);
    }
    CUlibrary library = nullptr;
    EXPECT_EQ(
        d.cuLibraryLoadFromFile(&library, file.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        expected)
        << what;
    if (library != nullptr) {
      EXPECT_EQ(d.cuLibraryUnload(library), CUDA_SUCCESS);
    }
    CUlinkState state = nullptr;
    ASSERT_EQ(d.cuLinkCreate_v2(0, nullptr, nullptr, &state), CUDA_SUCCESS);
    EXPECT_EQ(d.cuLinkAddFile_v2(state, CU_JIT_INPUT_FATBINARY, file.c_str(), 0, nullptr, nullptr),
              expected)
        << what;
    EXPECT_EQ(d.cuLinkDestroy(state), CUDA_SUCCESS);
  }

  const std::string file = (std::filesystem::temp_directory_path() /
                            ("ctxb_image_file_" + std::to_string(getpid()) + ".fatbin"))
                               .string();
};

TEST_F(ImageFiles, FileThatEndsBeforeItsImageIsRefused) {
  for (const Good& good : good_images()) {
    if (std::string_view(good.name).find("fatbin") == std::string_view::npos &&
        good.name != std::string_view("linked image")) {
      continue;  // text may end anywhere, and machine code does not run here
    }
    const std::string whole(good.bytes);
    expect_all(whole, CUDA_SUCCESS, good.name);
    for (const std::size_t size : {std::size_t{0}, std::size_t{4}, std::size_t{15}, std::size_t{16},
                                   std::size_t{40}, whole.size() / 2, whole.size() - 1}) {
      expect_all(whole.substr(0, size), CUDA_ERROR_INVALID_IMAGE,
                 std::string(good.name) + " of " + std::to_string(size) + " bytes");
    }
  }
}

TEST_F(ImageFiles, ForgedHeaderDoesNotLeadBehindTheEndOfTheFile) {
  constexpr std::size_t size_at = 8;  // of the payload, in the fatbin's header
  for (const std::uint64_t forged : {std::uint64_t{1} << 30, ~std::uint64_t{0}}) {
    std::string image(fixtures::good_plain_fatbin);
    std::memcpy(image.data() + size_at, &forged, sizeof forged);
    expect_all(image, CUDA_ERROR_INVALID_IMAGE, std::to_string(forged));
  }
}

TEST_F(ImageFiles, FileWithAnAddressInsteadOfCodeIsRefused) {
  const std::uint32_t magic_and_version[] = {0x466243b1, 1};
  const void* const addresses[] = {fixtures::good_plain_fatbin.data(), nullptr};
  std::string image(reinterpret_cast<const char*>(magic_and_version), sizeof magic_and_version);
  image.append(reinterpret_cast<const char*>(addresses), sizeof addresses);
  CUmodule module = nullptr;
  ASSERT_EQ(d.cuModuleLoadData(&module, image.data()), CUDA_SUCCESS) << "in memory it is valid";
  EXPECT_EQ(d.cuModuleUnload(module), CUDA_SUCCESS);
  expect_all(image, CUDA_ERROR_INVALID_IMAGE, "wrapper");
}

}  // namespace
}  // namespace ctxbroker::test
