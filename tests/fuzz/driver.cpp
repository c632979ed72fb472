// SPDX-License-Identifier: Apache-2.0
// Drives a fuzz target without libFuzzer. `fuzz_x N` tries N random changes of the built-in input;
// `fuzz_x FILE...` tries the files, for repeating what a campaign found.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>

namespace ctxbroker::fixtures {
extern const std::string_view seed_input;
}

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

void try_input(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

// One of: a byte changed, a piece removed, a piece copied elsewhere, the end cut off.
void change(std::string& input, std::mt19937& random) {
  if (input.empty()) return;
  const std::size_t at = random() % input.size();
  const std::size_t length = 1 + random() % 16;
  switch (random() % 8) {
    case 0:
      input.erase(at, length);
      break;
    case 1:
      input.insert(random() % input.size(), input.substr(at, length));
      break;
    case 2:
      if (random() % 16 == 0) input.resize(at);
      break;
    default:
      input[at] = static_cast<char>(random());
  }
}

void try_changes(unsigned long rounds) {
  std::mt19937 random(1);
  for (unsigned long round = 0; round < rounds; ++round) {
    std::string input(ctxbroker::fixtures::seed_input);
    for (std::size_t count = 1 + random() % 6; count > 0; --count) change(input, random);
    try_input(input);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s ROUNDS | FILE...\n", arguments[0]);
    return 2;
  }
  char* end = nullptr;
  const unsigned long rounds = std::strtoul(arguments[1], &end, 10);
  if (*end == '\0') {
    try_changes(rounds);
    std::printf("%lu inputs tried\n", rounds);
    return 0;
  }
  for (int i = 1; i < count; ++i) {
    std::ifstream file(arguments[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "%s: cannot be read\n", arguments[i]);
      return 1;
    }
    try_input({std::istreambuf_iterator<char>(file), {}});
  }
  return 0;
}
