// SPDX-License-Identifier: Apache-2.0
// The host's half of gaussian.cuh: weights, the buffer between the passes, the row pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctxbroker/plugin.hpp>

#include "gaussian.hpp"
#include "sizes.hpp"

namespace sample {

// What of an input a part of the output depends on.
inline ctxbroker::sdk::Rectangle gaussian_region(const ctxbroker::sdk::Rectangle& wanted,
                                                 double radius,
                                                 const ctxbroker::sdk::Rectangle& extent) {
  const auto reach = static_cast<std::uint32_t>(gaussian_reach(radius));
  return ctxbroker::sdk::within(ctxbroker::sdk::grown(wanted, reach), extent);
}

class GaussianStage {
 public:
  void activate(const ctxbroker::sdk::Activation& activation) {
    check_image(activation);
    rows_ = activation.kernel("gaussian_rows");
    sums_ =
        activation.buffer<float>(std::size_t{4} * activation.max_width() * activation.max_height());
    weights_ = activation.buffer<float>(gaussian_max_radius + 1);
    radius_ = -1;
  }

  // Enqueues the row pass; the sums are what the column pass reads. Weights travel only when the
  // radius has changed.
  ctxbroker::sdk::ImageView enqueue_rows(const ctxbroker::sdk::Job& job,
                                         const ctxbroker::sdk::PixelView& in,
                                         const ctxbroker::sdk::PixelView& out, double radius) {
    if (radius != radius_) {
      radius_ = -1;  // until the upload is on its way
      gaussian_ = make_gaussian(radius);
      job.upload(weights_, gaussian_.weights.data(), gaussian_.weights.size());
      radius_ = radius;
    }
    const ctxbroker::sdk::ImageView sums{reinterpret_cast<float*>(sums_.address()),
                                         std::uint64_t{16} * out.width, out.width, in.height};
    ctxbroker::sdk::LaunchShape shape = ctxbroker::sdk::over(sums.width, sums.height);
    shape.shared_bytes =
        16 * (shape.block.x + 2 * static_cast<std::uint32_t>(gaussian_.reach)) * shape.block.y;
    job.launch(rows_, shape, in, sums, out.x - in.x, weights_, gaussian_.reach);
    return sums;
  }

  // For a kernel around gaussian_column_pass.
  ctxbroker::sdk::LaunchShape column_shape(const ctxbroker::sdk::PixelView& out) const {
    constexpr std::uint32_t tile = 16;  // column_tile and rows_per_thread of gaussian.cuh
    constexpr std::uint32_t outputs = 4 * tile;
    return {{(out.width - 1) / tile + 1, grid_y((out.height - 1) / outputs + 1), 1},
            {tile, tile, 1},
            16 * tile * (outputs + 2 * static_cast<std::uint32_t>(gaussian_.reach))};
  }

  const ctxbroker::sdk::DeviceBuffer<float>& weights() const { return weights_; }
  int reach() const { return gaussian_.reach; }

 private:
  static std::uint32_t grid_y(std::uint32_t blocks) { return blocks < 65535 ? blocks : 65535; }

  ctxbroker::sdk::Kernel rows_;
  ctxbroker::sdk::DeviceBuffer<float> sums_;
  ctxbroker::sdk::DeviceBuffer<float> weights_;
  Gaussian gaussian_;
  double radius_ = -1;  // whose weights are on the device
};

}  // namespace sample
