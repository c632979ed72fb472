// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/plugin_instance.hpp"

#include <utility>

#include "plugin/instance.hpp"

namespace ctxbroker {

PluginInstance::PluginInstance(std::unique_ptr<detail::Instance> impl) : impl_(std::move(impl)) {}
PluginInstance::PluginInstance(PluginInstance&&) noexcept = default;

PluginInstance& PluginInstance::operator=(PluginInstance&& other) noexcept {
  const PluginInstance old(std::move(*this));
  impl_ = std::move(other.impl_);
  return *this;
}

PluginInstance::~PluginInstance() {
  if (impl_ != nullptr) detail::Instance::end(std::move(impl_));
}

const PluginDescription& PluginInstance::description() const& noexcept {
  return impl_->description();
}

LeaseInfo PluginInstance::lease() const {
  return impl_->lease_info();
}

Metrics PluginInstance::metrics() const {
  return impl_->metrics();
}

void PluginInstance::set_parameter(std::string_view id, const ParameterValue& value) {
  impl_->set_parameter(id, value);
}

ParameterStatus PluginInstance::try_set_parameter(std::size_t index,
                                                  const ParameterValue& value) noexcept {
  return impl_->try_set_parameter(index, value);
}

bool PluginInstance::get_parameter(std::size_t index, ParameterValue& value) const noexcept {
  return impl_->get_parameter(index, value);
}

double PluginInstance::parameter(std::string_view id) const {
  return impl_->parameter_value(id).number();
}

ParameterValue PluginInstance::parameter_value(std::string_view id) const {
  return impl_->parameter_value(id);
}

void PluginInstance::set_text(std::string_view id, std::string_view text) {
  impl_->set_text(id, text);
}

std::string PluginInstance::text(std::string_view id) const {
  return impl_->text(id);
}

std::string PluginInstance::to_text(std::string_view id, const ParameterValue& value) const {
  return impl_->to_text(id, value);
}

ParameterValue PluginInstance::from_text(std::string_view id, std::string_view text) const {
  return impl_->from_text(id, text);
}

void PluginInstance::activate(const ActivationSizes& sizes) {
  impl_->activate(sizes);
}

void PluginInstance::deactivate() {
  impl_->deactivate();
}

bool PluginInstance::active() const noexcept {
  return impl_->active();
}

bool PluginInstance::restart_requested() const noexcept {
  return impl_->restart_requested();
}

std::uint64_t PluginInstance::latency_frames() const {
  return impl_->latency_frames();
}

std::uint64_t PluginInstance::tail_frames() const {
  return impl_->tail_frames();
}

bool PluginInstance::has_state() const noexcept {
  return impl_->has_state();
}

std::vector<std::byte> PluginInstance::save_state() const {
  return impl_->save_state();
}

void PluginInstance::load_state(const std::vector<std::byte>& state) {
  impl_->load_state(state);
}

}  // namespace ctxbroker
