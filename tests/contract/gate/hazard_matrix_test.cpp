// SPDX-License-Identifier: Apache-2.0
// The hazard matrix: what misbehaving code does, by the way in which it reaches the driver and the
// place that it is called from. Each cell is tried with the broker and without it: with it the
// neighbour is unharmed, without it the damage is there to be seen. The whole table is printed when
// the program is run by hand.
//
// Cells without the broker are a process each, because they harm it. Those with the broker follow
// each other in one process, which is also what hosts do. Where one of them is harmed all the same,
// the next one begins in a new process.
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "attacks/attacks.h"
#include "ctxbroker/broker.hpp"
#include "neighbour.hpp"
#include "support/child_process.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

struct Behaviour {
  const char* name;
  bool touches_thread_only;    // harmless on a thread of the plug-in's own, but for what it costs
  const char* not_in_process;  // why no broker in the process can stop it; null: it is stopped
};
constexpr Behaviour behaviours[] = {
    {"reset", false, nullptr},
    {"reset_v2", false, nullptr},
    {"reset_by_tail_call", false, nullptr},
    {"reset_by_pointer", false, nullptr},
    {"release", false, nullptr},
    {"release_v2", false, nullptr},
    {"destroy_context", false, nullptr},
    {"leave_context_pushed", true, nullptr},
    {"pop_too_much", true, nullptr},
    {"take_neighbours_context", true, nullptr},
    {"set_device", true, nullptr},
    {"create_context_and_leave", true, nullptr},
    {"set_limit", false, nullptr},
    {"set_flags", false, nullptr},
    {"free_memory", false, nullptr},
    {"free_pinned", false, nullptr},
    {"unload_module", false, nullptr},
    {"destroy_stream", false, nullptr},
    {"destroy_event", false, nullptr},
    {"leave_global_capture", false, nullptr},
    {"change_pool", false, nullptr},
    {"unmap_memory", false, nullptr},
    {"leak_memory", false, nullptr},
    {"overwrite_memory", false, "contexts of one process share their addresses"},
};
constexpr const char* modes[] = {"proc_address", "dlsym",          "linked",
                                 "deepbind",     "runtime_static", "runtime_shared"};
constexpr const char* places[] = {"guarded", "own_thread", "constructor", "destructor"};

// The text that a child prints before each cell.
constexpr const char* cell_begins = "CELL\n";

// ---- in the child
// --------------------------------------------------------------------------------

std::string text_of(const AttackTarget& target) {
  std::ostringstream text;
  text << target.context << ' ' << target.stream << ' ' << target.event << ' ' << target.module
       << ' ' << std::hex << target.memory << ' ' << target.pinned << ' ' << target.mapped << ' '
       << target.mapped_bytes;
  return text.str();
}

struct Cell {
  std::string behaviour, mode, place, protection;
  std::filesystem::path library() const { return test_library("attacks_" + mode); }
  void announce(const AttackTarget& target) const {
    const std::string handles = text_of(target);
    setenv(ATTACK_TARGET, handles.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): no other thread
    const char* variable = place == "constructor"  ? ATTACK_IN_CONSTRUCTOR
                           : place == "destructor" ? ATTACK_IN_DESTRUCTOR
                                                   : nullptr;
    if (variable != nullptr)
      setenv(variable, behaviour.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  static void take_back() {
    unsetenv(ATTACK_IN_CONSTRUCTOR);  // NOLINT(concurrency-mt-unsafe)
    unsetenv(ATTACK_IN_DESTRUCTOR);   // NOLINT(concurrency-mt-unsafe)
  }
};

std::ostream& operator<<(std::ostream& stream, const Cell& cell) {
  return stream << cell.behaviour << ' ' << cell.mode << ' ' << cell.place << ' '
                << cell.protection;
}
std::istream& operator>>(std::istream& stream, Cell& cell) {
  return stream >> cell.behaviour >> cell.mode >> cell.place >> cell.protection;
}

// Makes the primary context current on the host's thread, as hosts do, and returns it.
CUcontext make_hosts_context() {
  CUcontext context = nullptr;
  EXPECT_EQ(driver_call("cuInit", 0U), CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuDevicePrimaryCtxRetain", &context, 0), CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuCtxSetCurrent", context), CUDA_SUCCESS);
  return context;
}

std::size_t free_memory() {
  std::size_t free = 0, total = 0;
  driver_call("cuMemGetInfo_v2", &free, &total);
  return free;
}

void report(const std::vector<std::string>& damage) {
  for (const auto& one : damage) std::printf("DAMAGE: %s\n", one.c_str());
}

// The host left one context on its thread's stack.
void report_thread(CUcontext expected) {
  CUcontext top = nullptr, below = nullptr;
  driver_call("cuCtxPopCurrent_v2", &top);
  driver_call("cuCtxGetCurrent", &below);
  if (top != expected) std::printf("DAMAGE: the host's thread has another context current\n");
  if (below != nullptr) std::printf("DAMAGE: the host's thread has more contexts than before\n");
  driver_call("cuCtxPushCurrent_v2", top != nullptr ? top : expected);
}

// A green context may keep a little of the device's memory for its successors.
bool is_memory_missing(std::size_t free_before) {
  return free_memory() + (32U << 20) < free_before;
}

// Free memory is the whole device's: these cells must have it to themselves.
void report_memory(const Cell& cell, std::size_t free_before) {
  if (cell.behaviour != "leak_memory" && cell.behaviour != "create_context_and_leave") return;
  if (is_memory_missing(free_before)) std::printf("DAMAGE: memory was not given back\n");
}

// Returns the release threshold of the device's default pool, as the host sees it.
std::uint64_t pool_threshold() {
  CUmemoryPool pool = nullptr;
  std::uint64_t bytes = 0;
  if (driver_call("cuDeviceGetDefaultMemPool", &pool, 0) == CUDA_SUCCESS) {
    driver_call("cuMemPoolGetAttribute", pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                static_cast<void*>(&bytes));
  }
  return bytes;
}

void report_pool(std::uint64_t before) {
  if (pool_threshold() != before) std::printf("DAMAGE: the default memory pool was changed\n");
}

void attack_by_place(const Cell& cell, const AttackTarget& target, attack_function* here,
                     attack_function* on_own_thread) {
  if (cell.place == "guarded") here(cell.behaviour.c_str(), &target);
  if (cell.place == "own_thread") on_own_thread(cell.behaviour.c_str(), &target);
}

// For a neighbour whose own calls go through a late gate: those of this program do not.
AdoptedLibrary adopt_library_for(Tenant& neighbour) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("ctxbroker_hazard_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto file = folder / "neighbour.so";
  // A file of its own, else the attacker may share it.
  std::filesystem::copy_file(test_library("attacks_dlsym"), file);
  AdoptedLibrary library = neighbour.adopt(file);
  std::filesystem::remove_all(folder);
  return library;
}

// Gives back what adopt_library_for lent, for the next cell.
struct FunctionsOfThisProgram {
  FunctionsOfThisProgram() = default;
  FunctionsOfThisProgram(const FunctionsOfThisProgram&) = delete;
  FunctionsOfThisProgram& operator=(const FunctionsOfThisProgram&) = delete;
  ~FunctionsOfThisProgram() { driver_look_up = before; }
  driver_address_function* const before = driver_look_up;
};

void run_with_broker(const Cell& cell) {
  const bool late = cell.protection.starts_with("late");
  if (late) {
    ASSERT_NE(dlopen("libcuda.so.1", RTLD_NOW), nullptr) << dlerror();
  }
  BrokerOptions options;
  options.use_gate = cell.protection != "late_off";
  options.records = [](const Record& record) {
    std::printf("%s: %s\n", record.topic, record.text.c_str());
  };
  Broker broker = Broker::open(std::move(options));
  const GateMode expected = !late                           ? GateMode::before_driver
                            : cell.protection == "late_off" ? GateMode::none
                                                            : GateMode::late;
  ASSERT_EQ(broker.gate().mode, expected) << broker.gate().reason;
  CUcontext hosts = make_hosts_context();
  const FunctionsOfThisProgram later;
  Tenant neighbours_tenant = broker.open_tenant("neighbour", {LeaseChoice(LeaseKind::green)});
  if (late) {
    driver_look_up = reinterpret_cast<driver_address_function*>(
        adopt_library_for(neighbours_tenant).symbol(DRIVER_ADDRESS));
  }
  Neighbour neighbour;
  neighbours_tenant.run(0, [&] { neighbour.settle(neighbours_tenant.lease().context); });
  const std::size_t free_before = free_memory();
  const std::uint64_t threshold_before = pool_threshold();
  {
    TenantOptions last{LeaseChoice(LeaseKind::green)};
    last.unload_at_close = true;
    Tenant attacker = broker.open_tenant("attacker", last);
    cell.announce(neighbour.target());
    AdoptedLibrary library = attacker.adopt(cell.library());
    auto* here = reinterpret_cast<attack_function*>(library.symbol(ATTACK));
    auto* own = reinterpret_cast<attack_function*>(library.symbol(ATTACK_ON_OWN_THREAD));
    if (cell.place == "own_thread") {
      attack_by_place(cell, neighbour.target(), here, own);  // unguarded
    } else {
      attacker.run(0, [&] { attack_by_place(cell, neighbour.target(), here, own); });
    }
    report_thread(hosts);
    neighbours_tenant.run(0, [&] { report(neighbour.damage()); });
    attacker.close();
  }
  // As hosts do. A pool that the neighbour's work kept at the close ends here.
  broker.poll();
  for (int i = 0; i < 1000 && is_memory_missing(free_before); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    broker.poll();
  }
  report_thread(hosts);
  neighbours_tenant.run(0, [&] { report(neighbour.damage()); });
  report_memory(cell, free_before);
  report_pool(threshold_before);
}

void run_without(const Cell& cell) {
  CUcontext hosts = make_hosts_context();
  if (cell.behaviour == "set_device") {
    // It shows where something else than the primary was current.
    ASSERT_EQ(driver_call("cuCtxSetCurrent", static_cast<CUcontext>(nullptr)), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuCtxCreate_v2", &hosts, 0U, 0), CUDA_SUCCESS);
  }
  // Some plug-ins share the primary, others have a context of their own.
  CUcontext own = nullptr, popped = nullptr;
  ASSERT_EQ(driver_call("cuCtxCreate_v2", &own, 0U, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver_call("cuCtxPopCurrent_v2", &popped), CUDA_SUCCESS);
  Neighbour neighbour;
  neighbour.settle(own);
  const std::size_t free_before = free_memory();
  const std::uint64_t threshold_before = pool_threshold();
  cell.announce(neighbour.target());
  void* library = dlopen(cell.library().c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  attack_by_place(cell, neighbour.target(),
                  reinterpret_cast<attack_function*>(dlsym(library, ATTACK)),
                  reinterpret_cast<attack_function*>(dlsym(library, ATTACK_ON_OWN_THREAD)));
  dlclose(library);
  report_thread(hosts);
  std::fflush(stdout);
  driver_call("cuCtxSetCurrent", own);
  if (driver_call("cuCtxSynchronize") != CUDA_SUCCESS) std::printf("DAMAGE: its context is gone\n");
  std::fflush(stdout);
  driver_call("cuCtxSetCurrent", hosts);
  report(neighbour.damage());
  report_memory(cell, free_before);
  report_pool(threshold_before);
}

TEST(HazardCell, DISABLED_PlaysTheChosenCells) {
  const char* text = std::getenv("CTXB_HAZARD_CELLS");  // NOLINT(concurrency-mt-unsafe)
  ASSERT_NE(text, nullptr);
  std::istringstream cells(text);
  for (Cell cell; cells >> cell;) {
    std::cout << cell_begins << std::flush;
    if (cell.protection == "off") {
      run_without(cell);
    } else {
      run_with_broker(cell);
    }
    Cell::take_back();
    if (HasFailure()) return;
    std::cout << "LOOKED\n" << std::flush;
  }
}

// ---- in the parent
// -------------------------------------------------------------------------------

struct Seen {
  bool damaged = false;
  bool attacked = false;  // the attack was made at all
  bool possible = true;   // this driver, or the runtime library, has what it calls
  std::string how;        // in words
  std::string output;
};

bool by_runtime(const std::string& mode) {
  return mode.starts_with("runtime");
}

bool can_be_tried(const std::string& mode) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // The ways to the driver differ in the loader's work and the gate's C, which sanitizers add
  // little to.
  if (mode != "proc_address") return false;
#endif
  return (!by_runtime(mode) || why_no_runtime_library().empty()) &&
         (mode != "deepbind" || why_no_deep_binding().empty());
}

// Returns the result of a cell from what a child printed for it. If the child has not printed that
// it looked for damage, its process ended.
Seen judge(const Cell& cell, const std::string& output) {
  Seen seen{false, false, true, "unharmed", output};
  seen.attacked = output.find("ATTACKING\n") != std::string::npos;
  const auto answer = output.find("ATTACKED: ");
  const int status = answer != std::string::npos ? std::atoi(output.c_str() + answer + 10) : 0;
  if (const auto at = output.find("DAMAGE: "); at != std::string::npos) {
    seen.damaged = true;
    seen.how = output.substr(at + 8, output.find('\n', at) - at - 8);
  } else if (output.find("LOOKED\n") == std::string::npos) {
    seen.damaged = true;
    seen.how = "the process ended";
  }
  if (!seen.damaged && (status == -1 || status == CUDA_ERROR_NOT_SUPPORTED)) {
    seen.possible = false;
    seen.how = by_runtime(cell.mode) ? "the runtime library has no such call"
                                     : "this driver lacks the call";
  }
  return seen;
}

// One process after the other until each cell has been tried.
std::vector<Seen> see(const std::vector<Cell>& cells) {
  std::vector<Seen> seen;
  while (seen.size() < cells.size()) {
    std::ostringstream left;
    const bool alone = cells[seen.size()].protection == "off";
    for (std::size_t i = seen.size(); i < (alone ? seen.size() + 1 : cells.size()); ++i) {
      left << cells[i] << ' ';
    }
    Environment environment{{"CTXB_HAZARD_CELLS", left.str()}};
    // Without a broker "libcuda.so.1" is found as on any machine; here that is the software device.
    if (driver_is_software()) {
      environment.emplace_back("LD_LIBRARY_PATH", software_device_folder().string());
    }
    const ChildResult child = run_child("HazardCell.DISABLED_PlaysTheChosenCells", environment);
    const std::size_t tried_before = seen.size();
    for (auto at = child.output.find(cell_begins);
         at != std::string::npos && seen.size() < cells.size();) {
      const auto next = child.output.find(cell_begins, at + 1);
      seen.push_back(judge(cells[seen.size()], child.output.substr(at, next - at)));
      at = next;
    }
    if (seen.size() == tried_before) {  // it has not even begun
      seen.push_back({true, false, true, "the process ended", child.output});
    } else if (child.exit_code != 0 && !seen.back().damaged) {
      seen.back() = {true, seen.back().attacked, true, "the process ended", child.output};
    }
  }
  return seen;
}

Seen see(const Cell& cell) {
  return see(std::vector<Cell>{cell}).front();
}

bool is_harmless(const Behaviour& behaviour, const std::string& place) {
  if (!behaviour.touches_thread_only || place != "own_thread") return false;
  // A context that is left behind takes hundreds of MiB; the software device's takes none.
  return driver_is_software() || behaviour.name != std::string("create_context_and_leave");
}

std::vector<std::string>& table() {
  static std::vector<std::string> lines;
  return lines;
}

class HazardMatrix : public ::testing::TestWithParam<Behaviour> {
 protected:
  static void TearDownTestSuite() {
    std::printf("\n%-26s %-13s %-12s %-40s %s\n", "behaviour", "link mode", "place", "without",
                "with the broker");
    for (const auto& line : table()) std::printf("%s\n", line.c_str());
    if (const auto why = why_no_runtime_library(); !why.empty())
      std::printf("runtime_static, runtime_shared: skipped, %s\n", why.c_str());
    if (const auto why = why_no_deep_binding(); !why.empty())
      std::printf("deepbind: skipped, %s\n", why.c_str());
  }
};

TEST_P(HazardMatrix, AttackHarmsNobodyWithTheBrokerAndSomebodyWithout) {
  const Behaviour& behaviour = GetParam();
  std::vector<Cell> cells, bare;
  for (const std::string mode : modes) {
    if (!can_be_tried(mode)) continue;
    for (const char* place : places) {
      cells.push_back({behaviour.name, mode, place, "on"});
      bare.push_back({behaviour.name, mode, place, "off"});
    }
  }
  const std::vector<Seen> all_with = see(cells), all_without = see(bare);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Seen &with = all_with[i], &without = all_without[i];
    SCOPED_TRACE(cells[i].behaviour + " " + cells[i].mode + " " + cells[i].place);
    char line[256];
    std::snprintf(line, sizeof line, "%-26s %-13s %-12s %-40s %s", behaviour.name,
                  cells[i].mode.c_str(), cells[i].place.c_str(), without.how.c_str(),
                  behaviour.not_in_process != nullptr
                      ? (std::string("RED, ") + behaviour.not_in_process).c_str()
                      : with.how.c_str());
    table().emplace_back(line);
    EXPECT_EQ(with.damaged, behaviour.not_in_process != nullptr) << with.output;
    EXPECT_TRUE(with.attacked && without.attacked) << with.output << without.output;
    EXPECT_EQ(without.damaged, without.possible && !is_harmless(behaviour, cells[i].place))
        << without.output;
  }
}

// The host had loaded the driver before it opened the broker. What a constructor does comes before
// the library is led to the gate.
class LateHazardMatrix : public ::testing::TestWithParam<Behaviour> {};

TEST_P(LateHazardMatrix, AttackHarmsNobodyOnceALateGateHasLoadedTheLibrary) {
  const Behaviour& behaviour = GetParam();
  std::vector<Cell> cells;
  for (const std::string mode : modes) {
    if (!can_be_tried(mode)) continue;
    for (const std::string place : {"guarded", "own_thread", "destructor"}) {
      if (place == "destructor" && mode != "linked") continue;  // led to the gate as elsewhere
      cells.push_back({behaviour.name, mode, place, "late"});
    }
  }
  const std::vector<Seen> seen = see(cells);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    SCOPED_TRACE(cells[i].behaviour + " " + cells[i].mode + " " + cells[i].place);
    EXPECT_TRUE(seen[i].attacked) << seen[i].output;
    EXPECT_EQ(seen[i].damaged, behaviour.not_in_process != nullptr) << seen[i].output;
  }
}

INSTANTIATE_TEST_SUITE_P(Behaviours, LateHazardMatrix, ::testing::ValuesIn(behaviours),
                         [](const auto& one) { return std::string(one.param.name); });

// The shield does not stop these attacks. They show what a late gate adds.
TEST(LateHazard, AttackWithoutTheGateOrBeforeItDoesDamage) {
  for (const char* name : {"free_memory", "unload_module", "destroy_stream", "destroy_event"}) {
    for (const char* mode : {"proc_address", "dlsym", "linked"}) {
      SCOPED_TRACE(std::string(name) + " " + mode);
      const Seen without = see(Cell{name, mode, "guarded", "late_off"});
      EXPECT_TRUE(without.attacked && without.damaged) << without.output;
      const Seen before = see(Cell{name, mode, "constructor", "late"});
      EXPECT_TRUE(before.attacked && before.damaged) << before.output;
    }
  }
}

// The driver's own library, whatever way the tenant has found it. The gate answers for dlsym.
TEST(HazardPastTheGate, LookUpInTheDriversLibraryGivesTheGatesFunction) {
  for (const char* mode : {"by_link_map", "by_base"}) {
    for (const char* protection : {"on", "late"}) {
      SCOPED_TRACE(std::string(mode) + " " + protection);
      const Seen held = see(Cell{"free_memory", mode, "guarded", protection});
      EXPECT_TRUE(held.attacked && !held.damaged) << held.output;
    }
  }
}

// A way past the gate that the_gate.md names. If it is held one day, that page has to change.
TEST(HazardPastTheGate, LookUpInTheDriversLibraryByAConstructorDoesDamage) {
  for (const char* mode : {"by_link_map", "by_base"}) {
    SCOPED_TRACE(mode);
    const Seen past = see(Cell{"free_memory", mode, "constructor", "on"});
    EXPECT_TRUE(past.attacked && past.damaged) << past.output;
  }
}

// A second driver knows nothing of what the first has.
TEST(HazardPastTheGate, SecondDriverReachesNothingOfTheFirst) {
  if (!driver_is_software()) GTEST_SKIP() << "NVIDIA's refuses to start, or ends the process";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer in a second namespace ends the process";
#endif
  for (const char* protection : {"on", "late"}) {
    const Seen other = see(Cell{"free_memory", "by_namespace", "guarded", protection});
    EXPECT_TRUE(other.attacked && !other.damaged) << other.output;
    EXPECT_THAT(other.output, ::testing::Not(::testing::HasSubstr("ATTACKED: 0")));
    EXPECT_THAT(other.output, ::testing::Not(::testing::HasSubstr("ATTACKED: -1")));
  }
}

INSTANTIATE_TEST_SUITE_P(Behaviours, HazardMatrix, ::testing::ValuesIn(behaviours),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace ctxbroker
