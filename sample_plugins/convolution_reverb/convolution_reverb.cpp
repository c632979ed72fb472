// SPDX-License-Identifier: Apache-2.0
// Reverb by convolution with a generated room, on the runtime API: cuFFT, kernels of its own,
// cudart linked statically. The impulse response is cut into partitions, so that the work for a
// block does not grow with the room, and no block has to wait for a partition to be full: no
// latency.
#include <cufft.h>

#include <algorithm>
#include <string>

#include "impulse.hpp"
#include "partitions.hpp"
#include "runtime.hpp"
#include "sizes.hpp"

namespace {

using namespace ctxbroker::sdk;
using namespace ctxbroker::sample;

constexpr Real decay =
    fixed(Real{0, "time", "Time", "s", "Until the room is 60 dB down.", {0.01, 10}, 1.8});
constexpr Real pre_delay =
    fixed(Real{1, "pre_delay", "Pre-delay", "ms", "Before the room answers.", {0, 500}, 12});
constexpr Integer seed =
    fixed(Integer{2, "seed", "Seed", "", "Another number is another room.", {0, 65535}, 1});
constexpr Real mix{3, "mix", "Mix", "", "0 is the input alone, 1 the room alone.", {0, 1}, 0.3};
constexpr auto parameters = parameter_table(decay, pre_delay, seed, mix);
constexpr const char* features[] = {"reverb", "convolution", nullptr};

void check_fft(cufftResult result, const char* what) {
  if (result == CUFFT_SUCCESS) {
    return;
  }
  throw Failure(result == CUFFT_ALLOC_FAILED ? CTXB_ERROR_OUT_OF_DEVICE_MEMORY : CTXB_ERROR_DRIVER,
                std::string(what) + ": cuFFT returned " + std::to_string(result));
}

// Transforms of all channels' windows at once.
class Transform {
 public:
  Transform() = default;
  Transform(const Transform&) = delete;
  Transform& operator=(const Transform&) = delete;

  void plan(cufftType type, const Partitions& partitions) {
    reset();
    int length = static_cast<int>(2 * partitions.length);
    int bins = static_cast<int>(partitions.bins());
    const bool forward = type == CUFFT_R2C;
    check_fft(cufftPlanMany(&plan_, 1, &length, &length, 1, forward ? length : bins, &length, 1,
                            forward ? bins : length, type, static_cast<int>(partitions.channels)),
              "planning the transforms");
    planned_ = true;
  }
  void reset() noexcept {
    if (planned_) {
      static_cast<void>(cufftDestroy(plan_));
    }
    forget();
  }
  void forget() noexcept { planned_ = false; }

  void use(cudaStream_t stream) const {
    check_fft(cufftSetStream(plan_, stream), "giving the transforms a stream");
  }
  void run(float* in, cufftComplex* out) const {
    check_fft(cufftExecR2C(plan_, in, out), "transforming a window");
  }
  void run(cufftComplex* in, float* out) const {
    check_fft(cufftExecC2R(plan_, in, out), "transforming a spectrum");
  }

 private:
  cufftHandle plan_ = 0;
  bool planned_ = false;
};

// As long as a block, so that most blocks lie in one or two; a power of two for the transforms.
std::uint32_t partition_length(std::uint32_t block) {
  std::uint32_t length = 256;
  while (length < block && length < 16384) {
    length *= 2;
  }
  return length;
}

class ConvolutionReverb final : public Plugin, public Latent {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::audio("org.ctxbroker.sample.convolution_reverb", "Convolution reverb", "1.0.0")
          .vendor("ctxbroker")
          .description("The sound of a room, on cuFFT.")
          .features(features)
          .parameters(parameters)
          .cuda_use(CTXB_CUDA_RUNTIME)
          .in_place()
          .flags(CTXB_PLUGIN_NEEDS_NVIDIA_DRIVER);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_audio(activation);
    sample::checked_rate(activation.sample_rate());
    try {
      prepare(activation);
    } catch (...) {
      deactivate();
      throw;
    }
  }

  Outcome process(const Job& job) override {
    auto* const stream = static_cast<cudaStream_t>(job.raw_stream());
    forward_.use(stream);
    backward_.use(stream);
    if (job.discontinuity()) {
      forget_past(stream);
    }
    const AudioView in = job.input_audio();
    const AudioView out = job.output_audio();
    const double wet = job[mix];
    for (std::uint32_t done = 0; done < out.frames;) {
      const Piece piece{done, filled_, std::min(out.frames - done, partitions_.length - filled_)};
      process_piece(in, out, piece, wet, stream);
      done += piece.frames;
    }
    return Outcome::done;
  }

  void deactivate() override {
    forward_.reset();
    backward_.reset();
    for (RuntimeBuffer<cufftComplex>* buffer : {&impulse_, &spectra_, &past_, &sum_}) {
      buffer->reset();
    }
    window_.reset();
    sound_.reset();
  }

  void context_lost(const Loss&) override {
    forward_.forget();
    backward_.forget();
    for (RuntimeBuffer<cufftComplex>* buffer : {&impulse_, &spectra_, &past_, &sum_}) {
      buffer->forget();
    }
    window_.forget();
    sound_.forget();
  }

  std::uint64_t tail() const override { return impulse_length_ - 1; }

 private:
  void prepare(const Activation& activation) {
    auto* const stream = static_cast<cudaStream_t>(activation.raw_stream());
    const Room room{activation[decay], activation[pre_delay] / 1000,
                    static_cast<std::uint32_t>(activation[seed])};
    impulse_length_ = impulse_length(room, activation.sample_rate());
    partitions_.length = partition_length(activation.max_frames());
    partitions_.count = static_cast<std::uint32_t>((impulse_length_ - 1) / partitions_.length + 1);
    partitions_.channels = activation.max_channels();
    forward_.plan(CUFFT_R2C, partitions_);
    backward_.plan(CUFFT_C2R, partitions_);
    forward_.use(stream);
    backward_.use(stream);

    impulse_.allocate(partitions_.count * spectrum());
    spectra_.allocate(partitions_.count * spectrum());
    past_.allocate(spectrum());
    sum_.allocate(spectrum());
    window_.allocate(windows());
    sound_.allocate(windows());
    transform_impulse(room, activation.sample_rate(), stream);
    forget_past(stream);
    // Once for nothing: what cuFFT loads at the first use is then loaded.
    check(cudaMemsetAsync(sum_.data(), 0, sum_.bytes(), stream), "cudaMemsetAsync");
    backward_.run(sum_.data(), sound_.data());
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  // Partition k of every channel, with silence behind it, becomes spectrum k.
  void transform_impulse(const Room& room, double sample_rate, cudaStream_t stream) {
    std::vector<float> padded(partitions_.count * windows());
    // The transform back multiplies by its length.
    const float scale = 0.5F / static_cast<float>(partitions_.length);
    for (std::uint32_t c = 0; c < partitions_.channels; ++c) {
      const std::vector<float> taps = impulse(room, sample_rate, c);
      for (std::size_t i = 0; i < taps.size(); ++i) {
        const std::size_t k = i / partitions_.length;
        padded[k * windows() + std::size_t{2} * c * partitions_.length + i % partitions_.length] =
            taps[i] * scale;
      }
    }
    for (std::uint32_t k = 0; k < partitions_.count; ++k) {
      check(cudaMemcpyAsync(window_.data(), padded.data() + k * windows(), window_.bytes(),
                            cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync");
      forward_.run(window_.data(), impulse_.data() + k * spectrum());
    }
    // `padded` may be read until here.
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  void forget_past(cudaStream_t stream) {
    check(cudaMemsetAsync(spectra_.data(), 0, spectra_.bytes(), stream), "cudaMemsetAsync");
    check(cudaMemsetAsync(window_.data(), 0, window_.bytes(), stream), "cudaMemsetAsync");
    current_ = filled_ = 0;
  }

  void process_piece(const AudioView& in, const AudioView& out, const Piece& piece, double wet,
                     cudaStream_t stream) {
    cufftComplex* const current = spectra_.data() + current_ * spectrum();
    take(partitions_, in, piece, window_.data(), stream);
    if (piece.at == 0) {
      sum_past(partitions_, impulse_.data(), spectra_.data(), current_, past_.data(), stream);
    }
    forward_.run(window_.data(), current);
    add_current(partitions_, impulse_.data(), current, past_.data(), sum_.data(), stream);
    backward_.run(sum_.data(), sound_.data());
    give(partitions_, in, out, piece, sound_.data(), static_cast<float>(1 - wet),
         static_cast<float>(wet), stream);
    filled_ += piece.frames;
    if (filled_ == partitions_.length) {
      next_window(partitions_, window_.data(), stream);
      filled_ = 0;
      current_ = (current_ + 1) % partitions_.count;
    }
  }

  std::size_t spectrum() const {  // values of all channels
    return std::size_t{partitions_.channels} * partitions_.bins();
  }
  std::size_t windows() const { return std::size_t{2} * partitions_.channels * partitions_.length; }

  Partitions partitions_{256, 1, 1};
  std::size_t impulse_length_ = 1;
  Transform forward_, backward_;
  RuntimeBuffer<cufftComplex> impulse_;  // spectra of its partitions
  RuntimeBuffer<cufftComplex> spectra_;  // ring of the windows' spectra
  RuntimeBuffer<cufftComplex> past_, sum_;
  RuntimeBuffer<float> window_, sound_;
  std::uint32_t current_ = 0;  // place in the ring
  std::uint32_t filled_ = 0;   // frames of the current partition
};

}  // namespace

CTXB_EXPORT_PLUGINS(ConvolutionReverb)
