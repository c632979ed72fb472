// SPDX-License-Identifier: Apache-2.0
// Ends what it was lent, as docs/troubleshooting.md shows it.
#include <dlfcn.h>

#include <ctxbroker/plugin.hpp>

namespace {

using namespace ctxbroker::sdk;

template <class Parameter>
void call(const char* function, Parameter parameter) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) throw Failure(CTXB_ERROR, "no driver");
  reinterpret_cast<int (*)(Parameter)>(dlsym(driver, function))(parameter);
}

class Meddler final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::image("com.example.meddler", "Meddler", "1.0.0").cuda_use(CTXB_CUDA_DRIVER);

  using Plugin::Plugin;

  void activate(const Activation& /*activation*/) override {}

  Outcome process(const Job& job) override {
    call("cuStreamDestroy_v2", job.raw_stream());
    call("cuMemFree_v2", reinterpret_cast<std::uint64_t>(job.output_image().data));
    return Outcome::bypass;
  }
};

}  // namespace

CTXB_EXPORT_PLUGINS(Meddler)
