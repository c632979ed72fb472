// SPDX-License-Identifier: Apache-2.0
// An image plug-in on CUDA's runtime API, in one file. It needs NVIDIA's driver, and so a GPU.
#include <ctxbroker/plugin.hpp>

namespace {

using namespace ctxbroker::sdk;

constexpr Real level{0, "level", "Level", "", "What is brighter becomes white.", {0, 1}, 0.5};
constexpr auto parameters = parameter_table(level);

__global__ void threshold(ImageView in, ImageView out, float limit) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= out.width) {
    return;
  }
  for (unsigned y = blockIdx.y; y < out.height; y += gridDim.y) {
    const float4 pixel = in.row(y)[x];
    const float grey = 0.2126f * pixel.x + 0.7152f * pixel.y + 0.0722f * pixel.z;
    const float value = grey > limit ? 1.0f : 0.0f;
    out.row(y)[x] = make_float4(value, value, value, pixel.w);
  }
}

class Threshold final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::image("com.example.threshold", "Threshold", "1.0.0")
          .vendor("Example")
          .description("Makes an image black and white.")
          .parameters(parameters)
          .cuda_use(CTXB_CUDA_RUNTIME)
          .in_place()
          .flags(CTXB_PLUGIN_NEEDS_NVIDIA_DRIVER);

  using Plugin::Plugin;

  void activate(const Activation&) override {}  // cudaMalloc, cufftPlan..., cublasCreate

  // Everything goes into the job's stream, and nothing waits for it.
  Outcome process(const Job& job) override {
    const ImageView out = job.output_image();
    const LaunchShape shape = over(out.width, out.height);
    threshold<<<dim3(shape.grid.x, shape.grid.y), shape.block.x, 0,
                static_cast<cudaStream_t>(job.raw_stream())>>>(job.input_image(), out,
                                                               static_cast<float>(job[level]));
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) {
      throw Failure(CTXB_ERROR_DRIVER, cudaGetErrorString(status), status);
    }
    return Outcome::done;
  }
};

}  // namespace

CTXB_EXPORT_PLUGINS(Threshold)
