// SPDX-License-Identifier: Apache-2.0
// host_parameters.h: parameters of instances, and presets.
#include <algorithm>

#include "ctxbroker/preset.hpp"
#include "plugin/c_host.hpp"
#include "plugin/parameter_store.hpp"

namespace {

using ctxbroker::ParameterStatus;
using ctxbroker::ParameterValue;
using ctxbroker::detail::answered;
using ctxbroker::detail::check_argument;
using ctxbroker::detail::send;
using ctxbroker::detail::value_of;

void give_numbers(const ParameterValue& value, double* numbers) noexcept {
  for (std::size_t i = 0; i < 4; ++i) numbers[i] = value[i];
}

}  // namespace

ctxb_status ctxb_instance_set_parameter(ctxb_instance* instance, const char* id, double value) {
  return answered(instance != nullptr && id != nullptr, "instance or id is null",
                  [&] { instance->instance.set_parameter(id, value); });
}

ctxb_status ctxb_instance_parameter(const ctxb_instance* instance, const char* id, double* value) {
  if (value != nullptr) *value = 0;
  return answered(instance != nullptr && id != nullptr && value != nullptr,
                  "instance, id or value is null",
                  [&] { *value = instance->instance.parameter(id); });
}

ctxb_status ctxb_instance_set_numbers(ctxb_instance* instance, uint32_t parameter,
                                      const double* numbers, uint32_t count) {
  if (instance == nullptr || numbers == nullptr) return CTXB_ERROR_INVALID_ARGUMENT;
  switch (instance->instance.try_set_parameter(parameter, value_of(numbers, count))) {
    case ParameterStatus::set:
      return CTXB_OK;
    case ParameterStatus::not_automatable:
      return CTXB_ERROR_WRONG_STATE;
    default:
      return CTXB_ERROR_INVALID_ARGUMENT;
  }
}

ctxb_status ctxb_instance_numbers(const ctxb_instance* instance, uint32_t parameter,
                                  double* numbers) {
  if (numbers != nullptr) std::fill_n(numbers, 4, 0.0);
  if (instance == nullptr || numbers == nullptr) return CTXB_ERROR_INVALID_ARGUMENT;
  ParameterValue value;
  if (!instance->instance.get_parameter(parameter, value)) return CTXB_ERROR_INVALID_ARGUMENT;
  give_numbers(value, numbers);
  return CTXB_OK;
}

ctxb_status ctxb_instance_print(const ctxb_instance* instance, const char* id,
                                const double* numbers, uint32_t count, ctxb_text_function write,
                                void* data) {
  return send(write, data, [&](const auto& take) {
    check_argument(instance != nullptr && id != nullptr && numbers != nullptr,
                   "instance, id or numbers is null");
    take(instance->instance.to_text(id, value_of(numbers, count)));
  });
}

ctxb_status ctxb_instance_read(const ctxb_instance* instance, const char* id, const char* text,
                               double* numbers) {
  if (numbers != nullptr) std::fill_n(numbers, 4, 0.0);
  return answered(instance != nullptr && id != nullptr && text != nullptr && numbers != nullptr,
                  "instance, id, text or numbers is null",
                  [&] { give_numbers(instance->instance.from_text(id, text), numbers); });
}

ctxb_status ctxb_instance_set_text(ctxb_instance* instance, const char* id, const char* text) {
  return answered(instance != nullptr && id != nullptr && text != nullptr,
                  "instance, id or text is null", [&] { instance->instance.set_text(id, text); });
}

ctxb_status ctxb_instance_text(const ctxb_instance* instance, const char* id,
                               ctxb_text_function write, void* data) {
  return send(write, data, [&](const auto& take) {
    check_argument(instance != nullptr && id != nullptr, "instance or id is null");
    take(instance->instance.text(id));
  });
}

ctxb_status ctxb_instance_save_preset(const ctxb_instance* instance, ctxb_text_function write,
                                      void* data) {
  return send(write, data, [&](const auto& take) {
    check_argument(instance != nullptr, "instance is null");
    take(to_json(save_preset(instance->instance)));
  });
}

ctxb_status ctxb_instance_load_preset(ctxb_instance* instance, const char* json,
                                      ctxb_text_function remark, void* data) {
  return answered(instance != nullptr && json != nullptr, "instance or json is null", [&] {
    for (const auto& one : load_preset(instance->instance, ctxbroker::parse_preset(json))) {
      if (remark != nullptr) remark(data, one.text.data(), one.text.size());
    }
  });
}
