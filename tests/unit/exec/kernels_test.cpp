// SPDX-License-Identifier: Apache-2.0
// Kernels as nvcc compiles them, against plain C++.
#include <array>
#include <cmath>
#include <random>
#include <string_view>

#include "support.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view kernels_ptx;
extern const std::string_view kernels_fast_ptx;
extern const std::string_view kernels_90_ptx;
}  // namespace ctxbroker::fixtures

namespace ctxbroker::software::exec::testing {
namespace {

using std::uint32_t;

std::vector<float> noise(std::size_t count, float scale, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> range(-scale, scale);
  std::vector<float> values(count);
  for (float& value : values) value = range(random);
  return values;
}

// Runs `body` for each way of compiling the kernels, each engine and each level.
template <class F>
void everywhere(F body, bool exact_only = true) {
  for (const std::string_view ptx :
       {fixtures::kernels_ptx, fixtures::kernels_90_ptx, fixtures::kernels_fast_ptx}) {
    if (exact_only && ptx == fixtures::kernels_fast_ptx) continue;
    Device device{std::string(ptx)};
    for (const Config& config : all_configs()) {
      SCOPED_TRACE(name_of(config) +
                   (ptx == fixtures::kernels_fast_ptx ? ", fast mathematics" : ""));
      body(device, config);
    }
  }
}

void expect_run(Device& device, const Config& config, const char* kernel, Dim3 grid, Dim3 block,
                const Arguments& arguments) {
  const Outcome outcome = device.launch(config, kernel, grid, block, arguments);
  ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
}

// Within a relative and an absolute bound.
void expect_close(double expected, double found, double relative, double absolute,
                  std::size_t index) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found)) << index;
    return;
  }
  if (std::isinf(expected)) {
    EXPECT_EQ(expected, found) << index;
    return;
  }
  EXPECT_LE(std::fabs(found - expected), std::fabs(expected) * relative + absolute)
      << index << ": " << found << ", should be " << expected;
}

TEST(Kernels, Gain) {
  everywhere(
      [](Device& device, const Config& config) {
        for (const int n : {1, 63, 64, 65, 257, 1000}) {
          const std::vector<float> in = noise(static_cast<std::size_t>(n), 10);
          float* x = device.upload(in);
          expect_run(device, config, "gain", {static_cast<uint32_t>(n + 127) / 128}, {128},
                     Arguments(x, 1.7F, n));
          for (int i = 0; i < n; ++i) ASSERT_EQ(x[i], in[static_cast<std::size_t>(i)] * 1.7F);
        }
      },
      false);
}

TEST(Kernels, Fir) {
  everywhere(
      [](Device& device, const Config& config) {
        const int n = 777, taps = 43;
        const std::vector<float> in = noise(n + taps, 1), h = noise(taps, 1, 2);
        const float *x = device.upload(in), *coefficients = device.upload(h);
        auto* y = device.upload(std::vector<float>(n));
        expect_run(device, config, "fir", {7}, {128}, Arguments(x, coefficients, y, n, taps));
        for (std::size_t i = 0; i < n; ++i) {
          float sum = 0;
          for (std::size_t k = 0; k < taps; ++k) sum = std::fma(in[i + k], h[k], sum);
          ASSERT_EQ(y[i], sum) << i;
        }
      },
      false);
}

TEST(Kernels, BiquadOfFewAndManyChannels) {
  everywhere([](Device& device, const Config& config) {
    for (const int channels : {1, 2, 7, 100}) {
      constexpr int frames = 300;
      const std::vector<float> in =
          noise(std::size_t{frames} * static_cast<std::size_t>(channels), 1);
      const float* x = device.upload(in);
      auto* y = device.upload(std::vector<float>(in.size()));
      expect_run(device, config, "biquad", {1}, {128}, Arguments(x, y, frames, channels));
      for (int c = 0; c < channels; ++c) {
        double z1 = 0, z2 = 0;
        for (int i = 0; i < frames; ++i) {
          const std::size_t at = static_cast<std::size_t>(i) * static_cast<std::size_t>(channels) +
                                 static_cast<std::size_t>(c);
          const double v = in[at], out = 0.2F * v + z1;
          z1 = 0.3F * v + z2 + 0.4F * out;
          z2 = 0.1F * v - 0.2F * out;
          expect_close(out, y[at], 1e-5, 1e-5, at);
        }
      }
    }
  });
}

TEST(Kernels, BlurWithASharedTile) {
  everywhere([](Device& device, const Config& config) {
    using Pixel = std::array<unsigned char, 4>;
    const int width = 51, height = 37;
    std::vector<Pixel> in(static_cast<std::size_t>(width * height));
    std::mt19937 random(3);
    for (Pixel& pixel : in) {
      for (auto& part : pixel) part = static_cast<unsigned char>(random());
    }
    const Pixel* source = device.upload(in);
    auto* out = device.upload(std::vector<Pixel>(in.size()));
    expect_run(device, config, "blur", {4, 3}, {16, 16}, Arguments(source, out, width, height));
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        for (std::size_t part = 0; part < 4; ++part) {
          int sum = 0;
          for (int j = -1; j <= 1; ++j) {
            for (int i = -1; i <= 1; ++i) {
              const int sx = std::clamp(x + i, 0, width - 1), sy = std::clamp(y + j, 0, height - 1);
              sum += in[sy * width + sx][part];
            }
          }
          ASSERT_EQ(out[y * width + x][part], sum / 9) << x << " " << y;
        }
      }
    }
  });
}

TEST(Kernels, PowersExponentialsSinesLogarithms) {
  everywhere([](Device& device, const Config& config) {
    std::vector<float> in = noise(600, 20);
    in.insert(in.end(), {0.0F, -0.0F, 1.0F, -1.0F, 88.0F, -88.0F, 1e-30F, 1e5F, -3e4F});
    const float* x = device.upload(in);
    auto* y = device.upload(std::vector<std::array<float, 4>>(in.size()));
    expect_run(device, config, "tone", {5}, {128},
               Arguments(x, y, 1.4F, static_cast<int>(in.size())));
    for (std::size_t i = 0; i < in.size(); ++i) {
      const double v = in[i];
      expect_close(static_cast<float>(std::pow(std::fabs(v), double(1.4F))), y[i][0], 1e-6, 1e-37,
                   i);
      expect_close(static_cast<float>(std::exp(v)), y[i][1], 3e-7, 1e-37, i);
      expect_close(static_cast<float>(std::sin(v)), y[i][2], 3e-7, 1e-9, i);
      expect_close(static_cast<float>(std::log(std::fabs(v))), y[i][3], 3e-7, 1e-9, i);
    }
  });
}

TEST(Kernels, FastMathematics) {
  Device device{std::string(fixtures::kernels_fast_ptx)};
  const std::vector<float> in = noise(1000, 3);
  const float* x = device.upload(in);
  auto* y = device.upload(std::vector<std::array<float, 4>>(in.size()));
  for (const Config& config : all_configs()) {
    SCOPED_TRACE(name_of(config));
    expect_run(device, config, "tone", {8}, {128},
               Arguments(x, y, 1.4F, static_cast<int>(in.size())));
    for (std::size_t i = 0; i < in.size(); ++i) {
      const double v = in[i];
      expect_close(std::pow(std::fabs(v), double(1.4F)), y[i][0], 2e-6, 1e-7, i);
      expect_close(std::exp(v), y[i][1], 2e-6, 1e-7, i);
      expect_close(std::sin(v), y[i][2], 1e-6, 1e-6, i);
      expect_close(std::log(std::fabs(v)), y[i][3], 1e-6, 1e-6, i);
    }
  }
}

TEST(Kernels, SinesOfLargeArguments) {
  everywhere([](Device& device, const Config& config) {
    const std::vector<float> in = noise(300, 50);
    const float* x = device.upload(in);
    auto* y = device.upload(std::vector<std::array<float, 2>>(in.size()));
    expect_run(device, config, "far_angles", {3}, {100}, Arguments(x, y, 300));
    for (std::size_t i = 0; i < in.size(); ++i) {
      const double v = in[i] * 1e8F;
      expect_close(std::sin(v), y[i][0], 3e-7, 1e-9, i);
      expect_close(std::cos(v), y[i][1], 3e-7, 1e-9, i);
    }
  });
}

TEST(Kernels, Doubles) {
  everywhere([](Device& device, const Config& config) {
    std::mt19937_64 random(5);
    std::uniform_real_distribution<double> range(-20, 20);
    std::vector<double> in(500);
    for (double& value : in) value = range(random);
    in.push_back(0);
    const double* x = device.upload(in);
    auto* y = device.upload(std::vector<double>(4 * in.size()));
    expect_run(device, config, "doubles", {4}, {128}, Arguments(x, y, static_cast<int>(in.size())));
    for (std::size_t i = 0; i < in.size(); ++i) {
      const double v = in[i];
      expect_close(std::exp(v), y[4 * i], 5e-16, 0, i);
      expect_close(std::pow(std::fabs(v), 2.5), y[4 * i + 1], 5e-16, 0, i);
      expect_close(std::sqrt(std::fabs(v)) / (v + 30), y[4 * i + 2], 0, 0, i);
      expect_close(std::sin(v), y[4 * i + 3], 5e-16, 0, i);
    }
  });
}

TEST(Kernels, IntegerHash) {
  everywhere([](Device& device, const Config& config) {
    const int n = 3001;
    auto* out = device.upload(std::vector<std::uint64_t>(n));
    expect_run(device, config, "hash", {31}, {97}, Arguments(out, 42U, n));
    for (int i = 0; i < n; ++i) {
      std::uint64_t h = 14695981039346656037ULL ^ 42;
      for (int k = 0; k <= i % 37; ++k) {
        h = (h ^ (static_cast<uint32_t>(i) >> (k % 32))) * 1099511628211ULL;
        h ^= h >> 29;
        if (h % 7 == 3) h = h / 11 + static_cast<uint32_t>(h) % 1000003U;
        h = (h << 13) | (h >> 51);
      }
      ASSERT_EQ(out[i], h) << i;
    }
  });
}

TEST(Kernels, Mandelbrot) {
  everywhere([](Device& device, const Config& config) {
    const int width = 67, height = 45, most = 100;
    auto* out = device.upload(std::vector<int>(width * height));
    expect_run(device, config, "mandelbrot", {9, 6}, {8, 8}, Arguments(out, width, height, most));
    // The fused operations that nvcc chooses decide about pixels at the border; they must be few,
    // and the same on all engines.
    static std::vector<int> first;
    const std::vector<int> found(out, out + width * height);
    if (first.empty()) first = found;
    EXPECT_EQ(found, first);
    int apart = 0;
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) {
        const float cx = static_cast<float>(x) * 3.0F / width - 2;
        const float cy = static_cast<float>(y) * 3.0F / height - 1.5F;
        float a = 0, b = 0;
        int i = 0;
        for (; i < most && a * a + b * b < 4; ++i) {
          const float next = a * a - b * b + cx;
          b = 2 * a * b + cy;
          a = next;
        }
        apart += found[y * width + x] != i;
      }
    }
    EXPECT_LT(apart, width * height / 50);
  });
}

struct Settings {
  float gain;
  std::int8_t offset;
  double bias;
  std::uint8_t pattern[5];
  alignas(16) float curve[4];
  alignas(4) short pair[2];
};

TEST(Kernels, StructsAsParameters) {
  everywhere([](Device& device, const Config& config) {
    Settings s = {2.5F, -100, 0.125, {1, 2, 3, 4, 250}, {10, 20, 30, 40}, {-3, 7}};
    const int n = 130;
    auto* out = device.upload(std::vector<float>(n));
    expect_run(device, config, "settings", {2}, {100}, Arguments(s, out, n));
    for (int i = 0; i < n; ++i) {
      const float expected = s.gain * static_cast<float>(i) + static_cast<float>(s.offset) +
                             static_cast<float>(s.bias) + static_cast<float>(s.pattern[i % 5]) +
                             s.curve[i & 3] + static_cast<float>(s.pair[0] * s.pair[1]);
      ASSERT_EQ(out[i], expected) << i;
    }
  });
}

TEST(Kernels, Switches) {
  everywhere([](Device& device, const Config& config) {
    const int n = 1000;
    int* out = device.upload(std::vector<int>(n));
    expect_run(device, config, "choose", {8}, {128}, Arguments(out, n));
    for (int i = 0; i < n; ++i) {
      const int expected[] = {i * 3 + 1, i ^ 0x55, -i, i >> 2, i * i, ~i, i + 77, 5, 5};
      ASSERT_EQ(out[i], expected[i % 9]) << i;
    }
  });
}

TEST(Kernels, TiledMatrixProduct) {
  everywhere([](Device& device, const Config& config) {
    const std::size_t n = 48;
    const std::vector<float> a = noise(n * n, 1), b = noise(n * n, 1, 2);
    const float *x = device.upload(a), *y = device.upload(b);
    auto* z = device.upload(std::vector<float>(n * n));
    expect_run(device, config, "matmul", {3, 3}, {16, 16}, Arguments(x, y, z, int(n)));
    for (std::size_t i = 0; i < n * n; ++i) {
      float sum = 0;
      for (std::size_t k = 0; k < n; ++k) {
        sum = std::fma(a[i / n * n + k], b[k * n + i % n], sum);
      }
      ASSERT_EQ(z[i], sum) << i;
    }
  });
}

TEST(Kernels, FunctionCallsWithLocalArrays) {
  everywhere([](Device& device, const Config& config) {
    const std::vector<float> in = noise(200, 2);
    float* x = device.upload(in);
    expect_run(device, config, "polynomial", {2}, {128}, Arguments(x, 200));
    for (std::size_t i = 0; i < in.size(); ++i) {
      double c[4];
      for (std::size_t k = 0; k < 4; ++k) c[(k + i) & 3] = double(k) + 1;
      const auto cubic = [&](double v) { return ((c[3] * v + c[2]) * v + c[1]) * v + c[0]; };
      expect_close(cubic(in[i]) + cubic(2.0 * in[i]), x[i], 1e-6, 2e-5, i);
    }
  });
}

TEST(Kernels, HistogramWithAtomics) {
  everywhere([](Device& device, const Config& config) {
    std::vector<unsigned char> in(5000);
    std::mt19937 random(9);
    for (auto& value : in) value = static_cast<unsigned char>(random() % 200);
    const unsigned char* x = device.upload(in);
    auto* bins = device.upload(std::vector<unsigned>(256));
    expect_run(device, config, "histogram", {5}, {200}, Arguments(x, bins, int(in.size())));
    std::vector<unsigned> expected(256);
    for (const unsigned char value : in) ++expected[value];
    EXPECT_EQ(std::vector<unsigned>(bins, bins + 256), expected);
  });
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
