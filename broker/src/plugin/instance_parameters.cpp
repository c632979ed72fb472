// SPDX-License-Identifier: Apache-2.0
// Instance: its parameters, as numbers and as text.
#include <filesystem>

#include "ctxbroker/error.hpp"
#include "plugin/foreign_text.hpp"
#include "plugin/instance.hpp"
#include "text/shown_text.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::size_t longest_value = 256;  // bytes of a value in words, with the 0 at the end

[[noreturn]] void refuse_while_active(const std::string& plugin, const std::string& parameter) {
  throw Error(ErrorKind::wrong_state, "parameter \"" + parameter + "\" of plug-in " + plugin +
                                          " cannot change while the plug-in is active; "
                                          "deactivate it first");
}

const ParameterDescription& check_is_text(const ParameterDescription& parameter, bool wanted) {
  if (parameter.is_text() == wanted) return parameter;
  throw Error(ErrorKind::invalid_argument,
              "parameter \"" + parameter.id + "\" is a " + to_string(parameter.type) + ", " +
                  (wanted ? "which has no text; use parameter and set_parameter"
                          : "which has no number; use text and set_text"));
}

}  // namespace

void Instance::set_parameter(std::string_view id, const ParameterValue& value) {
  const std::size_t index = description_.parameter_index(id);
  const ParameterDescription& parameter = check_is_text(description_.parameters[index], false);
  parameter.check(value);
  if (try_set_parameter(index, value) == ParameterStatus::not_automatable) {
    refuse_while_active(description_.short_name, parameter.id);
  }
}

ParameterStatus Instance::try_set_parameter(std::size_t index,
                                            const ParameterValue& value) noexcept {
  if (index >= description_.parameters.size()) return ParameterStatus::unknown_parameter;
  const ParameterDescription& parameter = description_.parameters[index];
  if (!parameter.allows(value)) return ParameterStatus::bad_value;
  if (!parameter.automatable && active()) return ParameterStatus::not_automatable;
  parameters_.set(index, value);
  return ParameterStatus::set;
}

bool Instance::get_parameter(std::size_t index, ParameterValue& value) const noexcept {
  if (index >= description_.parameters.size() || description_.parameters[index].is_text()) {
    return false;
  }
  value = parameters_.get(index);
  return true;
}

ParameterValue Instance::parameter_value(std::string_view id) const {
  const std::size_t index = description_.parameter_index(id);
  check_is_text(description_.parameters[index], false);
  return parameters_.get(index);
}

void Instance::set_text(std::string_view id, std::string_view text) {
  const std::size_t index = description_.parameter_index(id);
  const ParameterDescription& parameter = check_is_text(description_.parameters[index], true);
  parameter.check_text(text);
  if (active()) refuse_while_active(description_.short_name, parameter.id);
  std::string kept(text);
  if (parameter.type == ParameterType::file && !text.empty()) {
    kept = std::filesystem::absolute(kept).lexically_normal().string();
    parameter.check_text(kept);
  }
  parameters_.set_text(index, std::move(kept));
}

std::string Instance::text(std::string_view id) const {
  const std::size_t index = description_.parameter_index(id);
  check_is_text(description_.parameters[index], true);
  return parameters_.text(index);
}

std::string Instance::to_text(std::string_view id, const ParameterValue& value) {
  const std::size_t index = description_.parameter_index(id);
  const ParameterDescription& parameter = check_is_text(description_.parameters[index], false);
  parameter.check(value);
  if (parameter_text_ == nullptr) {
    return parameter.format(value);
  }
  const ctxb_value given = plugin_value(parameter, value, "");
  // Not zeros, so that a text without its 0 shows; and longer than the plug-in knows.
  std::string text(2 * longest_value, '?');
  ctxb_status status = CTXB_ERROR;
  // A job that runs at the same time keeps the failures that it has recorded.
  if (phase() != Phase::processing) failures_.clear();
  const CallOutcome outcome = call_main(nowhere(), "to_text", [&] {
    status = parameter_text_->to_text(object_, static_cast<std::uint32_t>(index), &given,
                                      text.data(), longest_value);
  });
  if (outcome.ran() && status == CTXB_ERROR_UNSUPPORTED) return parameter.format(value);
  if (!outcome.ran() || status != CTXB_OK) throw failure("to_text", outcome, status);
  const std::size_t length = text.find('\0');
  if (length < longest_value) return take_message(text.c_str());
  strike("to_text", ("wrote more than the " + std::to_string(longest_value) +
                     " bytes that it was given, or no 0 at the end; the host cut the text")
                        .c_str());
  text.resize(longest_value - 1);
  return take_message(text.c_str());
}

ParameterValue Instance::from_text(std::string_view id, std::string_view text) {
  const std::size_t index = description_.parameter_index(id);
  const ParameterDescription& parameter = check_is_text(description_.parameters[index], false);
  if (parameter_text_ == nullptr || text.size() > longest_text || !is_clean_text(text)) {
    return parameter.parse(text);
  }
  ctxb_value read = plugin_value(parameter, parameter.default_value, "");
  const std::string given(text);
  ctxb_status status = CTXB_ERROR;
  if (phase() != Phase::processing) failures_.clear();
  const CallOutcome outcome = call_main(nowhere(), "from_text", [&] {
    status = parameter_text_->from_text(object_, static_cast<std::uint32_t>(index), given.c_str(),
                                        &read);
  });
  if (outcome.ran() && status == CTXB_ERROR_UNSUPPORTED) return parameter.parse(text);
  if (!outcome.ran() || status != CTXB_OK) {
    const Error why = failure("from_text", outcome, status);
    if (outcome.busy) throw Error(why);
    throw Error(
        ErrorKind::parameter_value,
        "parameter \"" + parameter.id + "\" cannot be " + excerpt(given) + ": " + why.message(),
        why.origin());
  }
  const ParameterValue value = value_of(read.numbers, number_count(parameter.type));
  parameter.check(value);
  return value;
}

}  // namespace ctxbroker::detail
