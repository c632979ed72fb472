// SPDX-License-Identifier: Apache-2.0
// Kernels on the software device, beside the same in plain C++ with -O2 ("raw") on as many threads.
// CTXBROKER_SOFTWARE_THREADS=1 measures both on one thread.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench_kernels_kernels.hpp"
#include "kernels/plain.hpp"
#include "support/benchmark_main.hpp"
#include "support/kernels.hpp"

namespace ctxbroker::bench {
namespace {

unsigned threads() {
  const char* text = std::getenv("CTXBROKER_SOFTWARE_THREADS");
  const int given = text != nullptr ? std::atoi(text) : 0;
  return given > 0 ? static_cast<unsigned>(given)
                   : std::max(1U, std::thread::hardware_concurrency());
}

// Calls part(first, last) for equal parts of 0..size, each on a thread of its own.
template <typename Part>
void in_parallel(int size, const Part& part) {
  const int count = static_cast<int>(threads());
  const auto run = [&](int index) { part(size * index / count, size * (index + 1) / count); };
  std::vector<std::jthread> others;
  for (int index = 1; index < count; ++index) others.emplace_back(run, index);
  run(0);
}

// Device memory that holds the same as a vector.
template <typename T>
class Copy {
 public:
  Copy(const CheckedDriver& driver, const std::vector<T>& host) : driver_(driver), host_(host) {
    CTXB_CALL(driver, cuMemAlloc_v2, &address_, bytes());
    CTXB_CALL(driver, cuMemcpyHtoDAsync_v2, address_, host.data(), bytes(), nullptr);
    CTXB_CALL(driver, cuStreamSynchronize, nullptr);
  }
  ~Copy() { driver_.cuMemFree_v2(address_); }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  CUdeviceptr address() const noexcept { return address_; }

  // Throws unless the device's copy is nearly what the vector holds now.
  void check(float tolerance) const {
    std::vector<T> device(host_.size());
    CTXB_CALL(driver_, cuMemcpyDtoHAsync_v2, device.data(), address_, bytes(), nullptr);
    CTXB_CALL(driver_, cuStreamSynchronize, nullptr);
    for (std::size_t i = 0; i < device.size(); ++i) {
      const float ours = static_cast<float>(device[i]), plain = static_cast<float>(host_[i]);
      if (!(std::abs(ours - plain) <= tolerance * (1 + std::abs(plain)))) {
        throw std::runtime_error("element " + std::to_string(i) + " is " + std::to_string(ours) +
                                 " on the device and " + std::to_string(plain) + " in plain C++");
      }
    }
  }

 private:
  std::size_t bytes() const noexcept { return host_.size() * sizeof(T); }

  const CheckedDriver& driver_;
  const std::vector<T>& host_;
  CUdeviceptr address_ = 0;
};

template <typename T>
std::vector<T> numbers(std::size_t count) {
  std::vector<T> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = static_cast<T>(0.5F + static_cast<float>(i * 37 % 1024) / 1024);
  }
  return result;
}

struct Shape {
  unsigned x, y, block_x, block_y;
};

// Runs a kernel and its counterpart in turns. `inputs` are two, or one and null.
template <typename T, typename Plain, typename... Numbers>
double measure(Session& session, benchmark::State& state, const char* kernel, Shape grid,
               const std::vector<const std::vector<T>*>& inputs, std::vector<T>& out,
               float tolerance, const Plain& plain, Numbers... given) {
  const CheckedDriver& driver = session.raw();
  const Guard guard(session.host());
  const Module module(driver, bench_kernels_kernels::device.data);
  CUfunction const function = module.function(kernel);
  std::vector<std::unique_ptr<Copy<T>>> copies;
  for (const auto* input : inputs) copies.push_back(std::make_unique<Copy<T>>(driver, *input));
  const Copy<T> result(driver, out);
  std::vector<CUdeviceptr> addresses;
  for (const auto& copy : copies) addresses.push_back(copy->address());
  addresses.push_back(result.address());
  std::vector<void*> arguments;
  for (CUdeviceptr& address : addresses) arguments.push_back(&address);
  (arguments.push_back(&given), ...);
  const auto run = [&] {
    const auto start = Clock::now();
    driver.check(driver.cuLaunchKernel(function, grid.x, grid.y, 1, grid.block_x, grid.block_y, 1,
                                       0, nullptr, arguments.data(), nullptr),
                 "cuLaunchKernel");
    CTXB_CALL(driver, cuStreamSynchronize, nullptr);
    return nanoseconds_since(start);
  };
  const auto run_plain = [&] {
    const auto start = Clock::now();
    plain();
    return nanoseconds_since(start);
  };
  run();
  run_plain();
  result.check(tolerance);
  return report(state, compare(session.rounds(15), run_plain, run));
}

void enrol(Session& session) {
  const auto add = [](const char* name, auto body) {
    measure_once(name, benchmark::kMillisecond, body);
  };
  const int scale = session.quick() ? 16 : 1;
  const auto element_wise = [&session, scale](benchmark::State& state, const char* kernel, int size,
                                              auto function) {
    size /= scale;
    const auto count = static_cast<std::size_t>(size);
    const auto a = numbers<float>(count), b = numbers<float>(count);
    std::vector<float> out(count);
    return measure<float>(
        session, state, kernel, {static_cast<unsigned>(size) / 256, 1, 256, 1}, {&a, &b}, out,
        1e-6F,
        [&] {
          in_parallel(size, [&](int first, int last) {
            function(a.data(), b.data(), out.data(), first, last);
          });
        },
        size);
  };
  add("vector_add", [=](benchmark::State& state) {
    return element_wise(state, "vector_add", 1 << 22, plain::vector_add);
  });
  add("powf", [=](benchmark::State& state) {
    return element_wise(state, "powers", 1 << 20, plain::powers);
  });
  const auto blur = [&session, scale]<typename T>(benchmark::State& state, const char* kernel,
                                                  float tolerance) {
    const int width = 1920 / scale, height = 1080 / scale;
    const auto in = numbers<T>(static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
    std::vector<T> out(in.size());
    return measure<T>(
        session, state, kernel,
        {static_cast<unsigned>(width + 31) / 32, static_cast<unsigned>(height + 7) / 8, 32, 8},
        {&in}, out, tolerance,
        [&] {
          in_parallel(height, [&](int first, int last) {
            plain::blur(in.data(), out.data(), width, height, first, last);
          });
        },
        width, height);
  };
  add("blur_5x5",
      [=](benchmark::State& state) { return blur.operator()<float>(state, "blur_float", 1e-5F); });
  add("blur_5x5_half", [=](benchmark::State& state) {
    return blur.operator()<plain::Half>(state, "blur_half", 1e-2F);
  });
  add("fir_128_taps", [&session, scale](benchmark::State& state) {
    const int size = (1 << 18) / scale;
    constexpr int count = 128;
    const auto in = numbers<float>(static_cast<std::size_t>(size) + count);
    const auto taps = numbers<float>(count);
    std::vector<float> out(static_cast<std::size_t>(size));
    return measure<float>(
        session, state, "fir", {static_cast<unsigned>(size) / 256, 1, 256, 1}, {&in, &taps}, out,
        1e-5F,
        [&] {
          in_parallel(size, [&](int first, int last) {
            plain::fir(in.data(), taps.data(), out.data(), count, first, last);
          });
        },
        size, count);
  });
  for (const char* kernel : {"matrix_global", "matrix_shared"}) {
    add(kernel, [&session, scale, kernel](benchmark::State& state) {
      const int size = 512 / scale;
      const auto a = numbers<float>(static_cast<std::size_t>(size) *
                                    static_cast<std::size_t>(size)),
                 b = a;
      std::vector<float> out(a.size());
      const auto blocks = static_cast<unsigned>(size) / 16;
      return measure<float>(
          session, state, kernel, {blocks, blocks, 16, 16}, {&a, &b}, out, 1e-4F,
          [&] {
            in_parallel(size, [&](int first, int last) {
              plain::matrix(a.data(), b.data(), out.data(), size, first, last);
            });
          },
          size);
    });
  }
}

}  // namespace
}  // namespace ctxbroker::bench

int main(int argc, char** argv) {
  return ctxbroker::bench::benchmark_main(argc, argv, "bench_kernels", ctxbroker::bench::enrol);
}
