// SPDX-License-Identifier: Apache-2.0
#include "qos/victim.hpp"

#include "ctxbroker/sdk/views.hpp"
#include "support/statistics.hpp"

namespace ctxbroker::bench {

Victim::Victim(Session& session, Tenant& tenant)
    : driver_(session.raw()),
      tenant_(tenant),
      stream_(tenant.create_stream()),
      samples_(tenant.allocate(std::uint64_t{frames} * channels * sizeof(float))) {
  const Guard guard(tenant_);
  module_ = std::make_unique<Module>(driver_, gain_image());
  gain_ = module_->function("gain");
  CTXB_CALL(driver_, cuMemsetD8_v2, samples_, 0, std::size_t{frames} * channels * sizeof(float));
  CTXB_CALL(driver_, cuCtxSynchronize);
}

Victim::~Victim() {
  const Guard guard(tenant_);
  module_.reset();  // its stream and samples end with the tenant
}

double Victim::one_block() {
  sdk::AudioView samples{reinterpret_cast<float*>(samples_), frames * sizeof(float), frames,
                         channels};
  float factor = 0.5F;
  void* arguments[] = {&samples, &samples, &factor};
  const auto start = Clock::now();
  const Guard guard(tenant_);
  driver_.check(launch(driver_, gain_, {1, frames, channels}, stream_, arguments),
                "cuLaunchKernel");
  CTXB_CALL(driver_, cuStreamSynchronize, stream_);
  return nanoseconds_since(start);
}

void Victim::play(double seconds, std::vector<double>& latencies) {
  const auto start = Clock::now();
  do {
    latencies.push_back(one_block());
  } while (nanoseconds_since(start) < seconds * 1e9);
}

}  // namespace ctxbroker::bench
