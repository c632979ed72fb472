// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "env_command.hpp"
#include "exit_code.hpp"
#include "image/elf.hpp"
#include "observe/regular_file.hpp"

namespace ctxbroker::launch {
namespace {

constexpr std::size_t most_interpreters = 4;  // of the kernel

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Failure(ExitCode::cannot_run, path + ": " + why);
}

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

bool is_runnable(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

// The folders of PATH. An empty one is the working folder.
std::vector<std::string> search_path() {
  const char* const variable = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): one thread
  std::vector<std::string> folders;
  std::string_view rest = variable != nullptr ? variable : "/bin:/usr/bin";
  for (;;) {
    const std::size_t colon = rest.find(':');
    const std::string_view folder = rest.substr(0, colon);
    folders.emplace_back(folder.empty() ? "." : folder);
    if (colon == std::string_view::npos) return folders;
    rest.remove_prefix(colon + 1);
  }
}

// The system's loader ignores LD_PRELOAD for a process with rights that its starter does not have.
std::string rights_gained(const std::string& path) {
  struct stat status {};
  struct statvfs volume {};
  if (::stat(path.c_str(), &status) != 0) return {};
  if (::statvfs(path.c_str(), &volume) == 0 && (volume.f_flag & ST_NOSUID) != 0) return {};
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != ::getuid()) return "is set-user-ID";
  const bool sets_group = (status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0;
  if (sets_group && status.st_gid != ::getgid()) return "is set-group-ID";
  const bool has_capabilities =
      ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0 && ::geteuid() != 0;
  return has_capabilities ? "has file capabilities" : "";
}

void check_rights(const std::string& path) {
  const std::string gained = rights_gained(path);
  if (gained.empty()) return;
  refuse(path, "it cannot be protected, because it " + gained +
                   " and the system's loader preloads nothing into such a program; run a copy "
                   "without these rights");
}

#if defined(__x86_64__)
constexpr Elf64_Half own_machine = EM_X86_64;
constexpr const char* own_loader = "ld-linux-x86-64.so";
#elif defined(__aarch64__)
constexpr Elf64_Half own_machine = EM_AARCH64;
constexpr const char* own_loader = "ld-linux-aarch64.so";
#else
constexpr Elf64_Half own_machine = EM_NONE;
constexpr const char* own_loader = "ld";
#endif

// The loader that an ELF program names; empty: none.
std::string loader_of(const image::ElfReader& file, const Elf64_Ehdr& header) {
  for (std::uint32_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = file.segment(header, i);
    if (!segment || segment->p_type != PT_INTERP) continue;
    std::string name(std::min<std::uint64_t>(segment->p_filesz, 4096), '\0');
    if (!file.copy(segment->p_offset, name.data(), name.size())) return {};
    name.resize(std::min(name.size(), name.find('\0')));
    return name;
  }
  return {};
}

void check_elf(const std::string& path, const image::ElfReader& file) {
  const auto header = file.header();
  std::array<unsigned char, EI_NIDENT> ident{};
  const bool has_ident = file.copy(0, ident.data(), ident.size());
  if (!header || !has_ident) refuse(path, "it cannot be executed: the file is damaged");
  if (ident[EI_CLASS] != ELFCLASS64 || header->e_machine != own_machine) {
    refuse(path,
           "it cannot be protected, because it is built for another architecture than ctxb-run");
  }
  const std::string loader = loader_of(file, *header);
  if (loader.empty()) {
    refuse(path, "it cannot be protected, because it is linked statically and loads no library");
  }
  const std::size_t slash = loader.rfind('/');
  const std::string name = slash == std::string::npos ? loader : loader.substr(slash + 1);
  if (name.rfind(own_loader, 0) != 0) {
    refuse(path,
           "it cannot be protected, because it is built for another C library than ctxb-run: its "
           "loader is " +
               loader);
  }
}

std::string first_line(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return {};
  std::array<char, 256> text{};  // the kernel looks at no more
  const ssize_t bytes = ::read(file, text.data(), text.size());
  ::close(file);
  const std::string_view all(text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  return std::string(all.substr(0, all.find('\n')));
}

// The interpreter that a script's first line names, and the one argument that may follow it.
struct Interpreter {
  std::string path, argument;
};
Interpreter interpreter_in(const std::string& line) {
  constexpr const char* blanks = " \t";
  const std::size_t begin = line.find_first_not_of(blanks, 2);
  if (begin == std::string::npos) return {};
  const std::size_t end = line.find_first_of(blanks, begin);
  if (end == std::string::npos) return {line.substr(begin), {}};
  const std::size_t rest = line.find_first_not_of(blanks, end);
  const std::size_t last = line.find_last_not_of(blanks);
  return {line.substr(begin, end - begin),
          rest != std::string::npos ? line.substr(rest, last + 1 - rest) : ""};
}

void examine(const std::string& path, const std::vector<std::string>& arguments, Program& program);

// Goes on to the program that env becomes. What env says itself, as of a wrong option, it says when
// it runs.
void examine_env(const std::string& path, const std::vector<std::string>& arguments,
                 Program& program) {
  const EnvCommand env = read_env_command(arguments);
  if (env.command.empty()) return;
  std::string name = env.command.front();
  if (!env.lost.empty()) {
    refuse(path, "it would start " + name + " without protection, because " + env.lost +
                     "; let env start ctxb-run instead: env ... ctxb-run " + name + " ...");
  }
  const bool is_path = name.find('/') != std::string::npos;
  if (!is_path && env.changes_path) return;  // env looks in other folders than this process
  if (is_path && !env.folder.empty()) name = std::filesystem::path(env.folder) / name;
  const std::string found = find_program(name);
  program.run_by.push_back(found);
  examine(found, {env.command.begin() + 1, env.command.end()}, program);
}

void examine_script(const std::string& path, const std::vector<std::string>& arguments,
                    Program& program) {
  const std::string line = first_line(path);
  if (line.rfind("#!", 0) != 0) {
    refuse(path,
           "it cannot be executed: it is neither a program nor a script that begins with "
           "\"#!\"; name the program that runs it");
  }
  const Interpreter interpreter = interpreter_in(line);
  if (interpreter.path.empty()) refuse(path, "its first line names no interpreter");
  if (program.run_by.size() >= most_interpreters) {
    refuse(path, "its interpreter is a script, whose interpreter is a script, and so on: too many");
  }
  if (!is_runnable(interpreter.path)) {
    refuse(path, "its first line names the interpreter " + interpreter.path +
                     ", which is not there or cannot be executed");
  }
  program.is_script |= program.run_by.empty();
  program.run_by.push_back(interpreter.path);
  std::vector<std::string> given{path};
  if (!interpreter.argument.empty()) given.insert(given.begin(), interpreter.argument);
  given.insert(given.end(), arguments.begin(), arguments.end());
  examine(interpreter.path, given, program);
}

// `arguments` are those behind the program's name.
void examine(const std::string& path, const std::vector<std::string>& arguments, Program& program) {
  if (::access(path.c_str(), R_OK) != 0) {
    refuse(path, "it cannot be read, so ctxb-run cannot tell whether it can be protected: " +
                     errno_text(errno));
  }
  check_rights(path);
  const image::ElfOnDisk file(path);
  std::array<char, 4> magic{};
  const bool is_elf = file.copy(0, magic.data(), magic.size()) &&
                      std::string_view(magic.data(), magic.size()) == image::elf_magic;
  if (!is_elf) return examine_script(path, arguments, program);
  check_elf(path, file);
  if (std::filesystem::path(path).filename() == "env") examine_env(path, arguments, program);
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.empty()) throw Failure(ExitCode::not_found, "the program's name is empty");
  if (name.find('/') != std::string::npos) {
    struct stat status {};
    if (::stat(name.c_str(), &status) != 0) {
      const int error = errno;
      const bool is_missing = error == ENOENT || error == ENOTDIR;
      throw Failure(is_missing ? ExitCode::not_found : ExitCode::cannot_run,
                    name + ": " + (is_missing ? "there is no such program" : errno_text(error)));
    }
    if (S_ISDIR(status.st_mode)) refuse(name, "it is a folder, not a program");
    if (!is_runnable(name)) {
      refuse(name, "it is not executable; chmod +x makes it so");
    }
    return name;
  }
  std::string not_executable;
  for (std::string path : search_path()) {
    path.append("/").append(name);
    if (is_runnable(path)) return path;
    std::error_code ignored;
    if (not_executable.empty() && std::filesystem::is_regular_file(path, ignored)) {
      not_executable = path;
    }
  }
  if (!not_executable.empty()) {
    refuse(not_executable, "it is not executable; chmod +x makes it so");
  }
  const bool is_here = ::access(name.c_str(), F_OK) == 0;
  throw Failure(ExitCode::not_found,
                name + ": there is no such program in the folders of PATH" +
                    (is_here ? "; for the file in this folder, write ./" + name : ""));
}

std::string driver_path_in(const std::string& file) {
  constexpr std::size_t most = std::size_t{64} << 20;
  const std::string bytes = detail::read_regular_file(file, most).bytes;
  const std::size_t at = bytes.find("/libcuda.so");
  if (at == std::string::npos) return {};
  const std::size_t before = bytes.rfind('\0', at);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  const std::string path = bytes.substr(begin, bytes.find('\0', at) - begin);
  return path.size() < 4096 && path.front() == '/' ? path : "";
}

Program examine_program(const std::vector<std::string>& command) {
  Program program;
  program.path = find_program(command.front());
  examine(program.path, {command.begin() + 1, command.end()}, program);
  return program;
}

}  // namespace ctxbroker::launch
