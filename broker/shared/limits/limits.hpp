// SPDX-License-Identifier: Apache-2.0
// The limits on bytes that others wrote: PTX, images, documents, states. No such bytes make a
// reader wait or allocate beyond them. Each limit lies far above what tools and people write. The
// tests in tests/unit and tests/contract/broker hold the smallest input that reaches each.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace ctxbroker::limits {

struct Limit {
  const char* name;  // in messages, and in the table of docs/software_device.md
  std::uint64_t most;
  const char* counted;  // after the number in a message
  const char* remedy;   // an imperative, for the end of a message
};

inline constexpr std::uint64_t kib = 1024, mib = 1024 * kib, gib = 1024 * mib;

// --- PTX ---------------------------------------------------------------------------------------

// The text of one module. The texts that are linked into one count together. A packed text has it
// once it is unpacked.
inline constexpr Limit ptx_text{"ptx_text", 64 * mib, "bytes of PTX in one module",
                                "divide the module"};
// Words, numbers, strings and signs. The parser takes most of its time for each of them, and few of
// them fill a module's memory.
inline constexpr Limit ptx_words{"ptx_words", 32 * mib, "words and signs of PTX in one module",
                                 "divide the module"};
// One word, number, or string in quotation marks.
inline constexpr Limit ptx_word{"ptx_word", 64 * kib, "characters in one word",
                                "use a shorter name"};
// Braces, brackets, parentheses and signs inside each other.
inline constexpr Limit ptx_nesting{"ptx_nesting", 64, "levels inside each other",
                                   "nest less deeply"};
// The operands of one instruction, nested ones included.
inline constexpr Limit ptx_operands{"ptx_operands", 4096, "operands of one instruction",
                                    "pass fewer operands"};
inline constexpr Limit ptx_modifiers{"ptx_modifiers", 32, "modifiers of one instruction",
                                     "remove modifiers"};
inline constexpr Limit ptx_dimensions{"ptx_dimensions", 16, "dimensions of one array",
                                      "use fewer dimensions"};
// The parsed module (instructions, operands, variables, labels, scopes, initial values, source
// lines) and the program that is made from it. An alias counts like the function that it copies.
// The modules that are linked into one count together.
inline constexpr Limit module_memory{"module_memory", 512 * mib,
                                     "bytes of memory for one module while it is loaded",
                                     "divide the module"};
// The steps of all kernels of a module, after calls are expanded in place: each instruction,
// operation, label and variable is one, in each expansion.
inline constexpr Limit module_steps{"module_steps", 2 * mib,
                                    "steps of one module whose calls are expanded in place",
                                    "divide the module or call large functions less often"};
// The analysis of the control flow of all kernels of a module. A unit is one comparison or one word
// of a set. Code that compilers write needs about three for each step.
inline constexpr Limit module_analysis{"module_analysis", 512 * mib,
                                       "units of flow analysis for one module",
                                       "divide its largest kernels"};
// The registers and constants of one thread that live at the same time, 8 bytes each. A GPU has 255
// registers for a thread. Each processor that executes blocks holds them for up to 1,024 threads.
inline constexpr Limit thread_registers{"thread_registers", 128 * kib,
                                        "bytes of registers and constants in one thread",
                                        "keep fewer values at a time"};
// The .local variables of one thread.
inline constexpr Limit thread_local_memory{
    "thread_local_memory", 1 * mib - 1, "bytes of local memory in one thread", "use global memory"};
// The .shared variables of one kernel.
inline constexpr Limit kernel_shared_memory{
    "kernel_shared_memory", 16 * mib, "bytes of shared memory in one kernel", "use global memory"};
// Registers and .local variables of all blocks of a cooperative launch, which are under way
// together.
inline constexpr Limit launch_memory{
    "launch_memory", 4 * gib, "bytes of registers and local memory in one cooperative launch",
    "launch fewer blocks"};
// All programs that are loaded in a process, with their kernels, initial values and source lines,
// and all modules that are being loaded or linked.
inline constexpr Limit process_memory{"process_memory", 4 * gib,
                                      "bytes of memory for all modules in one process",
                                      "unload modules that are not needed, or load fewer at once"};
// The steps of all modules that are loaded in a process.
inline constexpr Limit process_steps{"process_steps", 32 * mib,
                                     "steps of all modules in one process",
                                     "unload modules that are not needed"};

// --- kernel images -----------------------------------------------------------------------------

// A fatbin, cubin, linked image or file with one, as it says of itself.
inline constexpr Limit image_bytes{"image_bytes", 2 * gib, "bytes in one kernel image",
                                   "divide the image"};
// A file with a module's image, or with one of the parts that are linked.
inline constexpr Limit module_file{"module_file", 512 * mib, "bytes in a module's file",
                                   "divide the module"};
// All entries of one fatbin, unpacked. One entry of PTX may have `ptx_text`, and one of machine
// code `image_code`.
inline constexpr Limit image_unpacked{"image_unpacked", 1 * gib,
                                      "unpacked bytes in one kernel image", "divide the image"};
inline constexpr Limit image_code{"image_code", 256 * mib,
                                  "unpacked bytes of machine code in one part of an image",
                                  "divide the image"};
// Entries of a fatbin, and inputs of a linked image.
inline constexpr Limit image_parts{"image_parts", 4096, "parts of one kernel image",
                                   "divide the image"};
// Names of kernels, variables and other symbols, each with 64 bytes around it. Symbols can share a
// name, which counts each time.
inline constexpr Limit image_names{
    "image_names", 256 * mib, "bytes of names and symbols in one kernel image", "divide the image"};
// Errors that the linker lists before it gives up.
inline constexpr Limit link_errors{"link_errors", 100, "errors while linking",
                                   "mend the first ones"};

// --- JSON documents and files ------------------------------------------------------------------

inline constexpr Limit json_nesting{"json_nesting", 100, "values inside each other",
                                    "nest less deeply"};
// Members of one object. A search for a member compares its name with all names before it.
inline constexpr Limit json_members{"json_members", 10'000, "members of one object",
                                    "divide the object"};
// Values of one document. Each takes more memory than its text.
inline constexpr Limit json_values{"json_values", 1 * mib, "values in one document",
                                   "divide the document"};
// The state that a plug-in saves.
inline constexpr Limit plugin_state{"plugin_state", 1 * gib, "bytes in the state of one instance",
                                    "save the names of large files and not their content"};
// Files. A state in a preset has `plugin_state`, and 4/3 of that as text.
inline constexpr Limit policy_file{"policy_file", 1 * mib, "bytes in a policy",
                                   "remove entries that are not needed"};
inline constexpr Limit preset_file{"preset_file", 2 * gib, "bytes in a preset",
                                   "see whether the file is a preset"};
inline constexpr Limit manifest_file{"manifest_file", 16 * mib, "bytes in a manifest",
                                     "write the manifest again"};
inline constexpr Limit cache_file{"cache_file", 256 * mib, "bytes in a cache",
                                  "remove the file, and a scan writes it again"};
inline constexpr Limit disabled_file{"disabled_file", 16 * mib,
                                     "bytes in a list of disabled libraries",
                                     "remove entries that are not needed"};
inline constexpr Limit graph_file{"graph_file", 1 * mib, "bytes in a graph", "divide the graph"};
inline constexpr Limit automation_file{"automation_file", 16 * mib, "bytes in an automation",
                                       "use fewer points"};

inline constexpr std::array all = {ptx_text,
                                   ptx_words,
                                   ptx_word,
                                   ptx_nesting,
                                   ptx_operands,
                                   ptx_modifiers,
                                   ptx_dimensions,
                                   module_memory,
                                   module_steps,
                                   module_analysis,
                                   thread_registers,
                                   thread_local_memory,
                                   kernel_shared_memory,
                                   launch_memory,
                                   process_memory,
                                   process_steps,
                                   image_bytes,
                                   module_file,
                                   image_unpacked,
                                   image_code,
                                   image_parts,
                                   image_names,
                                   link_errors,
                                   json_nesting,
                                   json_members,
                                   json_values,
                                   plugin_state,
                                   policy_file,
                                   preset_file,
                                   manifest_file,
                                   cache_file,
                                   disabled_file,
                                   graph_file,
                                   automation_file};

// "more than 64 levels inside each other, the limit ptx_nesting: nest less deeply".
inline std::string beyond(const Limit& limit) {
  return "more than " + std::to_string(limit.most) + " " + limit.counted + ", the limit " +
         limit.name + ": " + limit.remedy;
}

// The rest of a limit.
class Allowance {
 public:
  explicit Allowance(const Limit& limit) noexcept : limit_(&limit), left_(limit.most) {}

  // False, and nothing is taken, if less than `count` is left.
  bool take(std::uint64_t count) noexcept {
    if (count > left_) return false;
    left_ -= count;
    return true;
  }
  std::uint64_t taken() const noexcept { return limit_->most - left_; }
  const Limit& limit() const noexcept { return *limit_; }

 private:
  const Limit* limit_;
  std::uint64_t left_;
};

// The rest of a limit that several share. Thread-safe.
class SharedAllowance {
 public:
  explicit SharedAllowance(const Limit& limit) noexcept : limit_(&limit) {}

  // False, and nothing is taken, if less than `count` is left.
  bool take(std::uint64_t count) noexcept {
    std::uint64_t before = taken_.load(std::memory_order_relaxed);
    do {
      if (count > limit_->most - before) return false;
    } while (!taken_.compare_exchange_weak(before, before + count));
    return true;
  }
  void give_back(std::uint64_t count) noexcept { taken_.fetch_sub(count); }
  std::uint64_t taken() const noexcept { return taken_.load(); }
  const Limit& limit() const noexcept { return *limit_; }

 private:
  const Limit* limit_;
  std::atomic<std::uint64_t> taken_ = 0;
};

// A part of a shared allowance, which it must not outlive. All that it has taken comes back with
// it.
class Share {
 public:
  explicit Share(SharedAllowance& allowance) noexcept : allowance_(allowance) {}
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;
  ~Share() { allowance_.give_back(taken_); }

  bool take(std::uint64_t count) noexcept {
    if (!allowance_.take(count)) return false;
    taken_ += count;
    return true;
  }
  std::uint64_t taken() const noexcept { return taken_; }

 private:
  SharedAllowance& allowance_;
  std::uint64_t taken_ = 0;
};

}  // namespace ctxbroker::limits
