// SPDX-License-Identifier: Apache-2.0
#include "mps_fixture.hpp"

#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace ctxbroker {
namespace {

constexpr const char* script = R"(#!/bin/sh
p=$CUDA_MPS_PIPE_DIRECTORY
l=$CUDA_MPS_LOG_DIRECTORY
f=${0%/*}
if [ "$1" = -f ]; then
  env >"$f/environment"
  echo $$ >>"$f/processes"
  AT_START
  setsid sleep 600 &
  echo $! >>"$f/processes"
  touch "$p/control"
  while [ ! -e "$p/quit" ]; do sleep 0.02; done
  kill $!
  exit 0
fi
if [ ! -e "$p/control" ]; then
  echo 'Cannot find MPS control daemon process'
  exit 1
fi
read -r command
case $command in
  "quit -t 1") AT_QUIT ;;
  get_*) AT_QUESTION ;;
  *) exit 1 ;;
esac
)";

std::string content(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

bool is_alive(int process) {
  const std::string stat = content("/proc/" + std::to_string(process) + "/stat");
  const std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.at(name_end + 2) != 'Z';
}

}  // namespace

FakeMps::FakeMps(const FakeMpsWays& ways) {
  std::filesystem::create_directory(servers());
  std::string text = script;
  const auto put = [&](const std::string& place, const std::string& line) {
    text.replace(text.find(place), place.size(), line);
  };
  put("AT_START", ways.at_start);
  put("AT_QUIT", ways.at_quit);
  put("AT_QUESTION", ways.at_question);
  std::ofstream(program()) << text;
  std::filesystem::permissions(program(), std::filesystem::perms::owner_all);
}

FakeMps::~FakeMps() {
  for (const int process : alive()) ::kill(process, SIGKILL);
}

MpsServerOptions FakeMps::options() const {
  MpsServerOptions made;
  made.program = program();
  made.folder = servers();
  return made;
}

std::vector<int> FakeMps::started() const {
  std::istringstream numbers(content(temporary_ / "processes"));
  return {std::istream_iterator<int>(numbers), {}};
}

std::vector<int> FakeMps::alive() const {
  std::vector<int> living;
  for (const int process : started()) {
    if (is_alive(process)) living.push_back(process);
  }
  return living;
}

std::size_t FakeMps::folders() const {
  const std::filesystem::directory_iterator all(servers());
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::string FakeMps::environment() const {
  return content(temporary_ / "environment");
}

}  // namespace ctxbroker
