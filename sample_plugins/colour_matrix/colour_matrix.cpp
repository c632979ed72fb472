// SPDX-License-Identifier: Apache-2.0
// 3x3 colour matrix with an offset: rgb = M * rgb + offset; alpha stays.
#include <ctxbroker/plugin.hpp>

#include "colour_matrix_kernels.hpp"
#include "matrix.hpp"
#include "sizes.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr Real element(std::uint32_t place, const char* id, const char* name,
                       double default_value) {
  return {
      place,     id,           name, "", "Element of the matrix: row is output, column is input.",
      {-16, 16}, default_value};
}
constexpr Real offset(std::uint32_t place, const char* id, const char* name) {
  return {place, id, name, "", "Added after the matrix.", {-16, 16}, 0};
}

constexpr Real matrix_elements[] = {
    element(0, "m00", "Red from red", 1),     element(1, "m01", "Red from green", 0),
    element(2, "m02", "Red from blue", 0),    element(3, "m10", "Green from red", 0),
    element(4, "m11", "Green from green", 1), element(5, "m12", "Green from blue", 0),
    element(6, "m20", "Blue from red", 0),    element(7, "m21", "Blue from green", 0),
    element(8, "m22", "Blue from blue", 1)};
constexpr Real offsets[] = {offset(9, "offset_red", "Red offset"),
                            offset(10, "offset_green", "Green offset"),
                            offset(11, "offset_blue", "Blue offset")};
constexpr auto parameters =
    parameter_table(matrix_elements[0], matrix_elements[1], matrix_elements[2], matrix_elements[3],
                    matrix_elements[4], matrix_elements[5], matrix_elements[6], matrix_elements[7],
                    matrix_elements[8], offsets[0], offsets[1], offsets[2]);
constexpr ctxb_port inputs[] = {port("in", "Input", rgba_float_or_half)};
constexpr ctxb_port outputs[] = {in_place_port("out", "Output", rgba_float_or_half)};
constexpr const char* features[] = {"colour", "matrix", nullptr};

class ColourMatrix final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::image("org.ctxbroker.sample.colour_matrix", "Colour matrix", "1.0.0")
          .vendor("ctxbroker")
          .description("Mixes red, green and blue by a 3x3 matrix.")
          .features(features)
          .inputs(inputs)
          .outputs(outputs)
          .parameters(parameters)
          .modules(colour_matrix_kernels::modules)
          .flags(CTXB_PLUGIN_UNLOADABLE | CTXB_PLUGIN_PER_PIXEL);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_image(activation);
    kernel_ = activation.kernel("colour_matrix");
  }

  Outcome process(const Job& job) override {
    Matrix matrix{};
    for (std::size_t i = 0; i < 9; ++i) {
      matrix.m[i] = static_cast<float>(job[matrix_elements[i]]);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      matrix.offset[i] = static_cast<float>(job[offsets[i]]);
    }
    const PixelView out = job.output_pixels();
    job.launch(kernel_, over(out.width, out.height), job.input_pixels(), out, matrix);
    return Outcome::done;
  }

 private:
  Kernel kernel_;
};

}  // namespace

CTXB_EXPORT_PLUGINS(ColourMatrix)
