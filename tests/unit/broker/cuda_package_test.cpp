// SPDX-License-Identifier: Apache-2.0
#include "plugin/cuda_package.hpp"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "support/temp_folder.hpp"
#include "support/test_library.hpp"

namespace ctxbroker::detail {
namespace {

LoadedObject library(const std::string& path, std::vector<std::string> needed = {}) {
  LoadedObject one;
  one.path = path;
  one.name = path.substr(path.rfind('/') + 1);
  one.needed = std::move(needed);
  return one;
}

std::string package(const std::string& path, const std::vector<LoadedObject>& present = {}) {
  return package_of(library(path), path, present).name;
}

TEST(CudaPackageTest, FolderBelowSitePackagesIsAPackage) {
  EXPECT_EQ(package("/v/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so"), "torch");
  EXPECT_EQ(package("/v/lib/python3.12/site-packages/torch/_C.cpython-312.so"), "torch");
  EXPECT_EQ(package("/v/lib/python3.12/site-packages/torch.libs/libgomp-1.so"), "torch");
  EXPECT_EQ(package("/usr/lib/python3/dist-packages/cupy/_core/core.so"), "cupy");
  EXPECT_EQ(package("/v/site-packages/lonely.cpython-312-x86_64-linux-gnu.so"), "lonely");
  EXPECT_EQ(package("/v/site-packages/odd name!/a.so"), "odd_name_");
}

TEST(CudaPackageTest, PluginsBelowAPackageArePackages) {
  EXPECT_EQ(package("/v/site-packages/vapoursynth/plugins/bm3dcuda/libbm3dcuda.so"), "bm3dcuda");
  EXPECT_EQ(package("/v/site-packages/vapoursynth/plugins/libvszipcu.so"), "vszipcu");
  EXPECT_EQ(package("/v/site-packages/vapoursynth/vapoursynth.so"), "vapoursynth");
}

TEST(CudaPackageTest, PackagesThatWorkAsOneAreOne) {
  EXPECT_EQ(package("/v/site-packages/jaxlib/_jax.so"), "jax");
  EXPECT_EQ(package("/v/site-packages/jax_cuda13_plugin/_solver.so"), "jax");
  EXPECT_EQ(package("/v/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so"), "jax");
}

TEST(CudaPackageTest, PackageThatLinksAnothersCudaCodeIsPartOfIt) {
  const std::vector<LoadedObject> present{
      library("/v/site-packages/torch/lib/libtorch_cuda.so", {"libcudart.so.13"}),
      library("/v/site-packages/torch/lib/libc10.so"),
      library("/v/site-packages/torchvision/_C.so", {"libc10.so", "libtorch_cuda.so"}),
      library("/v/site-packages/plain/_C.so", {"libc10.so"})};
  EXPECT_EQ(package_of(present[2], present[2].path, present).name, "torch");
  EXPECT_EQ(package_of(present[3], present[3].path, present).name, "plain");
}

// "lib64" of a virtual environment is a link to "lib".
TEST(CudaPackageTest, LinkOnTheWayToAPackageMakesNoOtherPackage) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "lib/site-packages/torch");
  std::filesystem::create_directory_symlink("lib", folder / "lib64");
  const std::string real = std::filesystem::canonical(folder.path()).string() + "/lib",
                    link = (folder / "lib64").string();
  const std::vector<LoadedObject> present{
      library(real + "/site-packages/torch/_C.so", {"libtorch_cuda.so"}),
      library(link + "/site-packages/torch/libtorch_cuda.so", {"libcudart.so.13"})};
  const Package torch{"torch", real + "/site-packages"};
  EXPECT_EQ(package_of(present[0], present[0].path, present), torch);
  EXPECT_EQ(package_of(present[1], real + "/site-packages/torch/libtorch_cuda.so", present), torch);
}

TEST(CudaPackageTest, PackagesOfOneNameLieInDifferentFolders) {
  const std::string one = "/one/site-packages/painter/core.so",
                    two = "/two/site-packages/painter/core.so";
  EXPECT_EQ(package_of(library(one), one, {}), (Package{"painter", "/one/site-packages"}));
  EXPECT_EQ(package_of(library(two), two, {}), (Package{"painter", "/two/site-packages"}));
}

TEST(CudaPackageTest, BundleAndOwnFolderArePackages) {
  EXPECT_EQ(package("/usr/OFX/Plugins/Glow.ofx.bundle/Contents/Linux-x86-64/Glow.ofx"), "Glow");
  EXPECT_EQ(package("/home/a/.vst3/Synth.vst3/Contents/x86_64-linux/Synth.so"), "Synth");
  EXPECT_EQ(package("/opt/vs/plugins/bm3dcuda/libbm3dcuda.so.2"), "bm3dcuda");
}

TEST(CudaPackageTest, LibrariesOfOneFolderThatNeedEachOtherAreAPackage) {
  const std::vector<LoadedObject> present{
      library("/opt/p/libblur.so", {"libblur_kernels.so", "libc.so.6"}),
      library("/opt/p/libglow.so", {"libc.so.6"}),
      library("/opt/p/libblur_kernels.so", {"libblur_tables.so"}),
      library("/opt/p/libblur_tables.so"), library("/opt/q/libuser.so", {"libglow.so"})};
  EXPECT_EQ(package_of(present[0], present[0].path, present).name, "blur");
  EXPECT_EQ(package_of(present[1], present[1].path, present).name, "glow")
      << "a neighbour in the folder";
  EXPECT_EQ(package_of(present[2], present[2].path, present).name, "blur");
  EXPECT_EQ(package_of(present[3], present[3].path, present).name, "blur");
}

TEST(CudaPackageTest, LibrariesThatNeedEachOtherInARingAreAPackage) {
  const std::vector<LoadedObject> present{
      library("/opt/p/libb.so", {"liba.so"}), library("/opt/p/liba.so", {"libb.so"}),
      library("/opt/p/libc.so"), library("/opt/p/libd.so", {"libc.so"})};
  for (const std::size_t index : {0, 1}) {
    EXPECT_EQ(package_of(present[index], present[index].path, present).name, "a");
  }
  EXPECT_EQ(package_of(present[2], present[2].path, present).name, "d");
}

TEST(CudaPackageTest, SystemsAndNvidiasLibrariesAreInNoPackage) {
  for (const char* const path :
       {"/lib/x86_64-linux-gnu/libm.so.6", "/usr/lib/libfoo.so", "/usr/lib64/libfoo.so.1",
        "/usr/local/lib/libfoo.so", "/v/site-packages/nvidia/cublas/lib/libcublas.so.12",
        "/opt/cuda/lib64/libcudart.so.13", "/opt/any/libnccl.so.2",
        "/v/site-packages/painter.libs/libcudart-0ab1c2d3.so.12.4.127"}) {
    EXPECT_TRUE(is_in_no_package(library(path), path)) << path;
  }
  for (const char* const path :
       {"/usr/lib/x86_64-linux-gnu/gstreamer-1.0/libgstnvcodec.so", "/opt/blur/libblur.so",
        "/v/site-packages/torch/lib/libtorch_cuda.so"}) {
    EXPECT_FALSE(is_in_no_package(library(path), path)) << path;
  }
}

TEST(CudaPackageTest, LibraryThatReachesTheDriverUsesCuda) {
  EXPECT_TRUE(uses_cuda(library("/nowhere.so", {"libcudart.so.13"}), "/nowhere.so"));
  EXPECT_TRUE(uses_cuda(library("/nowhere.so", {"libcuda.so.1"}), "/nowhere.so"));
  EXPECT_TRUE(uses_cuda(library("/nowhere.so", {"libcudart-0ab1c2d3.so.12.4.127"}), "/nowhere.so"))
      << "a wheel's own copy";
  EXPECT_FALSE(uses_cuda(library("/nowhere.so", {"libcudart_not.so", "libc.so.6"}), "/nowhere.so"));
  const std::string by_name = test_library("attacks_dlsym").string();
  EXPECT_TRUE(uses_cuda(library(by_name), by_name)) << "it opens the driver by its name";
  const std::string none = test_library("throws_needed").string();
  EXPECT_FALSE(uses_cuda(library(none), none));
}

// A file with one segment, which ends where the file's last 100 bytes begin.
std::string file_with_name_at(std::size_t bytes, std::size_t at) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident,
              "\x7F"
              "ELF",
              4);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  Elf64_Phdr segment{};
  segment.p_type = PT_LOAD;
  segment.p_filesz = bytes - 100;
  std::string file(bytes, 'l');
  std::memcpy(file.data(), &header, sizeof header);
  std::memcpy(file.data() + sizeof header, &segment, sizeof segment);
  return file.replace(at, 10, "libcuda.so");
}

TEST(CudaPackageTest, LargeLibraryThatNamesTheDriverUsesCuda) {
  constexpr std::size_t mebibyte = 1 << 20;
  const TempFolder folder;
  const auto uses_with_name_at = [&](std::size_t at) {
    write_bytes(folder / "a.so", file_with_name_at(33 * mebibyte, at));
    return uses_cuda(library("/a.so"), folder / "a.so");
  };
  for (const std::size_t at : {200UL, mebibyte - 5, 17 * mebibyte, 33 * mebibyte - 110}) {
    EXPECT_TRUE(uses_with_name_at(at)) << at;
  }
  EXPECT_FALSE(uses_with_name_at(33 * mebibyte - 109)) << "it ends behind what the loader maps";
}

}  // namespace
}  // namespace ctxbroker::detail
