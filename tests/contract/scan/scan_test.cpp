// SPDX-License-Identifier: Apache-2.0
// One library at a time: what becomes of it, what is kept, and what its user can do.
#include <csignal>
#include <fstream>
#include <thread>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/manifest.hpp"
#include "scan_fixture.hpp"
#include "support/child_process.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Scans, and counts the libraries that are loaded.
struct Counted {
  explicit Counted(ScanOptions options) {
    options.progress = [this](const ScanProgress& progress) {
      loads += progress.begins ? 1 : 0;
      return true;
    };
    found = scan(options);
  }
  int loads = 0;
  ScanResult found;
};

TEST_F(ScanTest, ASoundLibraryIsDescribedAndNotLoaded) {
  put("parameters", "parameters.so");
  const ScanResult found = scan(options());
  ASSERT_THAT(found.libraries, SizeIs(1));
  EXPECT_EQ(found.libraries[0].state, LibraryState::enabled) << found.libraries[0].reason;
  EXPECT_EQ(found.libraries[0].source, LibrarySource::scan);
  EXPECT_THAT(found.notes, IsEmpty());
  EXPECT_TRUE(found.complete);
  EXPECT_THAT(text_of("/proc/self/maps"), testing::Not(HasSubstr(folder.string())));

  // It says what the loaded library says.
  Broker broker = Broker::open_without_driver();
  const PluginLibrary library = broker.load(folder / "parameters.so");
  EXPECT_EQ(to_json(Manifest{"0", library.plugins()}),
            to_json(Manifest{"0", found.libraries[0].plugins}));
  EXPECT_EQ(found.libraries[0].plugins[0].library_path, (folder / "parameters.so").string());
}

TEST_F(ScanTest, LibrariesThatNeedDifferentVersionsOfAnotherAreNamed) {
  put("versions_one", "a.so");
  put("versions_two", "b.so");
  put("versions_same", "c.so");
  for (const char* version : {"version_1", "version_2", "version_3"}) {
    std::filesystem::copy(test_library(version).replace_extension(), folder / version,
                          std::filesystem::copy_options::recursive);
  }
  const ScanResult found = scan(options());
  for (const ScannedLibrary& one : found.libraries) {
    EXPECT_EQ(one.state, LibraryState::enabled) << one.reason;
  }
  ASSERT_THAT(found.notes, SizeIs(1));
  EXPECT_THAT(
      found.notes[0],
      AllOf(HasSubstr("different versions of libctxb_test_versioned.so.1: \""),
            HasSubstr("version_1/libctxb_test_versioned.so.1\" (a.so, c.so); \""),
            HasSubstr("version_2/libctxb_test_versioned.so.1\" (b.so)."), HasSubstr("in workers")));
  // A library that a user disables, or that is not there, needs nothing.
  set_library_enabled(folder / "b.so", false, options());
  EXPECT_THAT(scan(options()).notes, IsEmpty());
}

struct Deed {
  const char* library;
  LibraryState state;
  const char* reason;
};

class DeedTest : public ScanTest, public ::testing::WithParamInterface<Deed> {};

TEST_P(DeedTest, HarmfulLibraryCostsOnlyItsOwnEntry) {
  const Deed& deed = GetParam();
  put(deed.library, "b.so");
  put("unloadable", "a.so");
  put("unloadable", "c.so");
  if (std::string(deed.library) == "throws_by_needed") put("throws_needed", "throws_needed.so");
  ScanOptions asked = options();
  asked.at_once = 1;
  asked.deadline = std::chrono::milliseconds(deed.state == LibraryState::hung ? 500 : 20000);
  const ScanResult found = scan(asked);
  EXPECT_EQ(named(found, "a.so").state, LibraryState::enabled);
  EXPECT_EQ(named(found, "b.so").state, deed.state) << named(found, "b.so").reason;
  EXPECT_THAT(named(found, "b.so").reason, HasSubstr(deed.reason));
  EXPECT_EQ(named(found, "c.so").state, LibraryState::enabled) << named(found, "c.so").reason;
  EXPECT_THAT(found.notes, IsEmpty());
  const bool is_strike = deed.state == LibraryState::crashed || deed.state == LibraryState::hung;
  EXPECT_EQ(named(found, "b.so").strikes, is_strike ? 1U : 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Libraries, DeedTest,
    ::testing::Values(
        Deed{"scan_crashes", LibraryState::crashed, "the last words"},
        Deed{"scan_hangs", LibraryState::hung, "longer than 500 ms"},
        Deed{"scan_exits", LibraryState::crashed, "with status 0"},
        Deed{"scan_prints", LibraryState::enabled, ""},
        Deed{"scan_leaves_child", LibraryState::enabled, ""},
        Deed{"scan_kills_parent", LibraryState::crashed, "ended the scanning program: signal 9"},
        Deed{"scan_stops_parent", LibraryState::hung, "it stopped the scanning program"},
        Deed{"scan_kills_group", LibraryState::crashed, "signal 9"},
        Deed{"scan_forges", LibraryState::could_not_load, "its answer"},
        Deed{"scan_endless", LibraryState::could_not_load, "name is null, too long"},
        Deed{"throws_constructor", LibraryState::crashed,
             "a static constructor threw an exception: the table cannot be read"},
        Deed{"throws_by_needed", LibraryState::crashed,
             "that of a library that came with it (throws_needed.so), threw an exception"},
        Deed{"broken_init_throws", LibraryState::could_not_load, "threw an exception"},
        Deed{"broken_abi_major", LibraryState::could_not_load, "plug-in ABI"},
        Deed{"broken_text", LibraryState::could_not_load, "invalid ELF header"}),
    [](const auto& test) { return std::string(test.param.library); });

// The positive control: the host that loads them itself ends.
TEST(ScanControl, DISABLED_HostLoadsTheCrashingLibrary) {
  Broker broker = Broker::open_without_driver();
  static_cast<void>(broker.load(test_library("scan_crashes")));
}
TEST(ScanControl, DISABLED_HostLoadsTheExitingLibrary) {
  Broker broker = Broker::open_without_driver();
  static_cast<void>(broker.load(test_library("scan_exits")));
  ADD_FAILURE() << "it came back";
}
TEST(ScanControl, HostThatLoadsHarmfulLibrariesItselfEnds) {
  EXPECT_NE(run_child("ScanControl.DISABLED_HostLoadsTheCrashingLibrary").exit_code, 0);
  EXPECT_THAT(run_child("ScanControl.DISABLED_HostLoadsTheExitingLibrary").output,
              testing::Not(AnyOf(HasSubstr("PASSED"), HasSubstr("it came back"))));
}

TEST_F(ScanTest, ACrashIsForgivenWhenTheFileChanges) {
  put("scan_crashes", "b.so");
  EXPECT_EQ(named(scan(options()), "b.so").state, LibraryState::crashed);
  const Counted again(options());
  EXPECT_EQ(again.loads, 0);
  EXPECT_EQ(named(again.found, "b.so").state, LibraryState::crashed);
  EXPECT_EQ(named(again.found, "b.so").source, LibrarySource::cache);

  ScanOptions asked = options();
  asked.rescan = true;
  const Counted rescanned(asked);
  EXPECT_EQ(rescanned.loads, 1);
  EXPECT_EQ(named(rescanned.found, "b.so").strikes, 2U);

  put("unloadable", "b.so");
  const Counted mended(options());
  EXPECT_EQ(mended.loads, 1);
  EXPECT_EQ(named(mended.found, "b.so").state, LibraryState::enabled);
  EXPECT_EQ(named(mended.found, "b.so").strikes, 0U);
}

TEST_F(ScanTest, AMissingDependencyIsLookedForEachTime) {
  put("broken_missing_library", "b.so");
  EXPECT_THAT(named(scan(options()), "b.so").reason, HasSubstr("libctxb_test_nowhere"));
  EXPECT_EQ(Counted(options()).loads, 1);
}

TEST_F(ScanTest, TheUserDisablesAndEnables) {
  const fs::path library = put("unloadable", "a.so");
  const ScanResult before = scan(options());
  EXPECT_THAT(before.plugins(), SizeIs(1));
  set_library_enabled(library, false, options());
  const ScanResult without = scan(options());
  EXPECT_EQ(named(without, "a.so").state, LibraryState::disabled);
  EXPECT_THAT(named(without, "a.so").reason, HasSubstr("the user"));
  EXPECT_THAT(named(without, "a.so").plugins, SizeIs(1)) << "to be shown";
  EXPECT_THAT(without.plugins(), IsEmpty());
  set_library_enabled(library, true, options());
  const ScanResult again = scan(options());
  EXPECT_THAT(again.plugins(), SizeIs(1));

  // A damaged file is said so, and stays as it is. Nobody knows then what may be used.
  write_text(options().choices_file, "{");
  const ScanResult damaged = scan(options());
  EXPECT_THAT(damaged.choices_trouble, HasSubstr("disabled.json"));
  EXPECT_THAT(damaged.notes, ElementsAre(damaged.choices_trouble));
  EXPECT_EQ(named(damaged, "a.so").state, LibraryState::could_not_load);
  EXPECT_THAT(named(damaged, "a.so").plugins, SizeIs(1)) << "to be shown";
  EXPECT_THAT(damaged.plugins(), IsEmpty());
  EXPECT_THROW(set_library_enabled(library, false, options()), Error);
  EXPECT_EQ(text_of(options().choices_file), "{");
}

TEST_F(ScanTest, ADisabledLibraryIsNotRun) {
  set_library_enabled(put("scan_crashes", "a.so"), false, options());
  const Counted counted(options());
  EXPECT_EQ(counted.loads, 0);
  EXPECT_EQ(named(counted.found, "a.so").state, LibraryState::disabled);
}

TEST_F(ScanTest, NothingRunsIfItCannotBeToldWhatIsDisabled) {
  set_library_enabled(put("scan_crashes", "a.so"), false, options());
  put("unloadable", "b.so");
  const std::string list = text_of(options().choices_file);
  write_text(options().choices_file, list.substr(0, list.size() / 2));
  const Counted counted(options());
  EXPECT_EQ(counted.loads, 0);
  for (const char* name : {"a.so", "b.so"}) {
    EXPECT_EQ(named(counted.found, name).state, LibraryState::could_not_load);
    EXPECT_THAT(named(counted.found, name).reason, HasSubstr("cannot be told"));
  }
  // The positive control.
  write_text(options().choices_file, list);
  const Counted whole(options());
  EXPECT_EQ(named(whole.found, "a.so").state, LibraryState::disabled);
  EXPECT_EQ(named(whole.found, "b.so").state, LibraryState::enabled);
  EXPECT_THAT(whole.found.choices_trouble, IsEmpty());
}

TEST_F(ScanTest, AllowAndDenyListsDecideWhichLibrariesAreUsed) {
  put("unloadable", "a.so");
  put("unloadable", "b.so");
  ScanOptions asked = options();
  asked.allow = {"[ab].so"};
  asked.deny = {folder.string() + "/a*"};
  const ScanResult found = scan(asked);
  EXPECT_THAT(named(found, "a.so").reason, HasSubstr("deny list"));
  EXPECT_EQ(named(found, "b.so").state, LibraryState::enabled);
  asked.allow = {"c*"};
  EXPECT_THAT(named(scan(asked), "b.so").reason, HasSubstr("allow list"));
  asked.allow = {""};
  EXPECT_THROW(static_cast<void>(scan(asked)), Error);
}

TEST_F(ScanTest, AMissingLibraryIsStillKnown) {
  fs::remove(put("unloadable", "a.so"));
  EXPECT_THAT(scan(options()).libraries, IsEmpty());
  put("unloadable", "a.so");
  EXPECT_THAT(scan(options()).libraries, SizeIs(1));
  fs::remove(folder / "a.so");
  const ScanResult found = scan(options());
  EXPECT_EQ(named(found, "a.so").state, LibraryState::missing);
  EXPECT_EQ(named(found, "a.so").plugins[0].id, "com.example.test.small");
  EXPECT_THAT(found.plugins(), IsEmpty());
  ScanOptions asked = options();
  asked.rescan = true;
  EXPECT_THAT(scan(asked).libraries, IsEmpty());
  EXPECT_THAT(scan(options()).libraries, IsEmpty());
}

TEST_F(ScanTest, SafeModeRunsNothing) {
  put("unloadable", "a.so");
  ScanOptions asked = options();
  asked.safe = true;
  const Counted before(asked);
  EXPECT_EQ(before.loads, 0);
  EXPECT_EQ(named(before.found, "a.so").state, LibraryState::could_not_load);
  EXPECT_THAT(named(before.found, "a.so").reason, HasSubstr("safe mode"));
  EXPECT_EQ(named(scan(options()), "a.so").state, LibraryState::enabled);
  EXPECT_EQ(named(scan(asked), "a.so").state, LibraryState::enabled) << "the cache knows it now";
}

TEST_F(ScanTest, AManifestIsBelievedIfItIsOfThisBuild) {
  const fs::path library = put("unloadable", "a.so");
  ScanOptions asked = options();
  asked.use_cache = false;
  const ScanResult found = scan(asked);
  write_text(manifest_path(library), to_json(make_manifest(library, found.libraries[0].plugins)));
  const Counted read(asked);
  EXPECT_EQ(read.loads, 0);
  EXPECT_EQ(named(read.found, "a.so").source, LibrarySource::manifest);
  EXPECT_EQ(read.found.libraries[0].plugins[0].library_path, library.string());

  // Another build of the library: the manifest says nothing about it.
  put("parameters", "a.so");
  const Counted stale(asked);
  EXPECT_EQ(stale.loads, 1);
  EXPECT_THAT(stale.found.notes, ElementsAre(HasSubstr("it is of build ")));
  EXPECT_NE(stale.found.plugins()[0]->id, "com.example.test.small");
}

TEST_F(ScanTest, ManifestWithTheBufferOfAnInputThatIsNotThereIsNotBelieved) {
  const fs::path library = put("unloadable", "a.so");
  ScanOptions asked = options();
  asked.use_cache = false;
  const ScanResult found = scan(asked);
  const std::string good = to_json(make_manifest(library, found.libraries[0].plugins));
  const std::string before = "\"id\": \"out\",";
  const std::size_t at = good.find(before);
  ASSERT_NE(at, std::string::npos) << good;
  for (const char* input : {"0", "1", "4294967294", "4294967295", "4294967296"}) {
    std::string manifest = good;
    manifest.insert(at + before.size(), std::string(" \"in_place\": ") + input + ",");
    write_text(manifest_path(library), manifest);
    const bool is_there = std::string(input) == "0";
    EXPECT_EQ(named(scan(asked), "a.so").source,
              is_there ? LibrarySource::manifest : LibrarySource::scan)
        << input;
  }
}

TEST_F(ScanTest, HostileManifestsAreNotBelieved) {
  const fs::path library = put("unloadable", "a.so");
  const std::string id = make_manifest(library, {}).build_id;
  const std::string start = R"({"schema": "ctxbroker.manifest/1", "build_id": ")" + id + "\", ";
  const std::vector<std::string> manifests = {
      "",
      "null",
      "[]",
      R"({"schema": "ctxbroker.manifest/2"})",
      R"({"schema": "ctxbroker.manifest/1", "build_id": 7, "plugins": []})",
      start + R"("plugins": []})",
      start + R"("plugins": {}})",
      start + R"("plugins": [7]})",
      start + R"("plugins": [{"id": "../../etc/passwd"}]})",
      start + "\"plugins\": " + std::string(100000, '['),
      start + "\"plugins\": \"" + std::string(17 << 20, 'x') + "\"}",
  };
  ScanOptions asked = options();
  asked.use_cache = false;
  for (const std::string& manifest : manifests) {
    write_text(manifest_path(library), manifest);
    const ScanResult found = scan(asked);
    EXPECT_THAT(found.notes, ElementsAre(HasSubstr("a.ctxb.json"))) << manifest.substr(0, 200);
    EXPECT_EQ(named(found, "a.so").source, LibrarySource::scan);
  }
  fs::remove(manifest_path(library));
  fs::create_directory(manifest_path(library));
  EXPECT_THAT(scan(asked).notes, ElementsAre(HasSubstr("it is no file")));
}

TEST_F(ScanTest, OfTwoPluginsWithOneIdTheHigherVersionCounts) {
  const fs::path second = root / "second";
  fs::create_directory(second);
  fs::copy_file(test_library("parameters_upgraded"), second / "p.so");
  put("parameters", "p.so");
  ScanOptions asked = options();
  asked.first.push_back(second);
  const ScanResult found = scan(asked);
  ASSERT_THAT(found.libraries, SizeIs(2));
  ASSERT_FALSE(found.duplicates.empty());
  EXPECT_EQ(found.duplicates[0].used, second / "p.so");
  EXPECT_EQ(found.duplicates[0].passed_over, folder / "p.so");
  EXPECT_THAT(found.duplicates[0].text, HasSubstr("its version is higher"));
  EXPECT_EQ(found.plugins()[0]->library_path, (second / "p.so").string());
  EXPECT_EQ(found.find(found.plugins()[0]->id), found.plugins()[0]);
  EXPECT_EQ(found.find("nobody"), nullptr);
}

TEST_F(ScanTest, ADamagedCacheIsSaidAndMended) {
  put("unloadable", "a.so");
  put("unloadable", "b.so");
  const ScanOptions asked = options();
  static_cast<void>(scan(asked));
  const std::string good = text_of(asked.cache_file);
  // The end of a line is cut off: that library is looked at again, the other one is known.
  write_text(asked.cache_file, good.substr(0, good.size() - 40));
  const Counted cut(asked);
  EXPECT_THAT(cut.found.notes, ElementsAre(HasSubstr("is damaged, and is mended")));
  EXPECT_EQ(cut.loads, 1);
  EXPECT_THAT(Counted(asked).found.notes, IsEmpty());
  // None of it is a cache.
  write_text(asked.cache_file, std::string("\x7f\x45LF\n\n") + std::string(1000, '\0'));
  const Counted none(asked);
  EXPECT_EQ(none.loads, 2);
  EXPECT_THAT(none.found.notes, ElementsAre(HasSubstr("is damaged, and is mended")));
  const Counted mended(asked);
  EXPECT_EQ(mended.loads, 0);
  EXPECT_THAT(mended.found.notes, IsEmpty());
}

TEST_F(ScanTest, ACacheThatCannotBeWrittenIsANote) {
  put("unloadable", "a.so");
  ScanOptions asked = options();
  asked.cache_file = "/proc/no/such/place.jsonl";
  const ScanResult found = scan(asked);
  EXPECT_EQ(named(found, "a.so").state, LibraryState::enabled);
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("nothing more is kept")));
}

TEST_F(ScanTest, WithoutTheScanningProgramNothingIsBlamed) {
  put("unloadable", "a.so");
  for (const char* program : {"/no/such/program", "/bin/false", "/bin/cat"}) {
    ScanOptions asked = options();
    asked.program = program;
    const ScanResult found = scan(asked);
    EXPECT_FALSE(found.complete);
    EXPECT_EQ(named(found, "a.so").state, LibraryState::could_not_load);
    EXPECT_EQ(named(found, "a.so").strikes, 0U);
    EXPECT_THAT(found.notes, ElementsAre(HasSubstr(program)));
  }
  EXPECT_EQ(named(scan(options()), "a.so").state, LibraryState::enabled) << "nothing was kept";
}

TEST_F(ScanTest, TheHostEndsAScan) {
  for (const char* name : {"a.so", "b.so", "c.so"}) put("unloadable", name);
  ScanOptions asked = options();
  asked.at_once = 1;
  asked.progress = [](const ScanProgress& progress) { return progress.done < 1; };
  const ScanResult found = scan(asked);
  EXPECT_FALSE(found.complete);
  EXPECT_EQ(named(found, "a.so").state, LibraryState::enabled);
  EXPECT_THAT(named(found, "b.so").reason, HasSubstr("ended before it"));
  EXPECT_EQ(Counted(options()).loads, 2);
}

TEST_F(ScanTest, TwoHostsAtOnceKeepWhatBothFind) {
  const fs::path second = root / "second";
  fs::create_directory(second);
  for (int index = 0; index < 30; ++index) {
    const std::string name = std::to_string(index) + ".so";
    fs::create_symlink(test_library("unloadable"), folder / name);
    fs::create_symlink(test_library("parameters"), second / name);
  }
  ScanOptions other = options();
  other.first = {second};
  std::thread beside([&] { EXPECT_THAT(scan(other).libraries, SizeIs(30)); });
  EXPECT_THAT(scan(options()).libraries, SizeIs(30));
  beside.join();
  EXPECT_EQ(Counted(options()).loads, 0);
  EXPECT_EQ(Counted(other).loads, 0);
  EXPECT_THAT(Counted(other).found.notes, IsEmpty());
}

TEST_F(ScanTest, FileNamesOfAnyKindAreScannedOrRefused) {
  const std::vector<std::string> names = {"a\nb.so", "with \"quotes\" and spaces.so", "-v.so"};
  for (const std::string& name : names) put("unloadable", name);
  put("unloadable", "\xff\xfe.so");
  const ScanResult found = scan(options());
  for (const std::string& name : names) {
    EXPECT_EQ(named(found, name).state, LibraryState::enabled) << named(found, name).reason;
  }
  EXPECT_THAT(named(found, "\xff\xfe.so").reason, HasSubstr("not UTF-8"));
  EXPECT_THAT(to_json(found), HasSubstr("ctxbroker.scan/1"));
  EXPECT_EQ(Counted(options()).loads, 0);
}

}  // namespace
}  // namespace ctxbroker
