// SPDX-License-Identifier: Apache-2.0
#include "probe/protocol.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "ctxbroker/error.hpp"
#include "probe/questions.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::string_view value_mark = "ctxbroker-probe-value ";
constexpr std::string_view missing_mark = "ctxbroker-probe-missing ";
constexpr std::string_view failure_mark = "ctxbroker-probe-failure ";

void tell(std::string_view mark, const std::string& text) {
  std::printf("%.*s%s\n", static_cast<int>(mark.size()), mark.data(), text.c_str());
  std::fflush(stdout);  // the next call may crash
}

bool belongs(std::string_view probe, std::string_view name) {
  for (const Question& question : questions()) {
    if (name == question.name) return probe == question.probe;
  }
  return false;
}

ProbeAnswer* find(std::vector<ProbeAnswer>& answers, std::string_view name) {
  for (ProbeAnswer& answer : answers) {
    if (answer.name == name) return &answer;
  }
  return nullptr;
}

// Returns the answer that `line` is about when the line has the form "MARK NAME REST"; else null.
ProbeAnswer* answer_of(std::string_view line, std::string_view mark, std::string_view probe,
                       std::vector<ProbeAnswer>& answers, std::string_view& rest) {
  if (line.substr(0, mark.size()) != mark) return nullptr;
  line.remove_prefix(mark.size());
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos || !belongs(probe, line.substr(0, blank))) return nullptr;
  rest = line.substr(blank + 1);
  return find(answers, line.substr(0, blank));
}

// The output of a process beside its answers: its failure, and the last line that is not part of
// the protocol, because that line often explains a crash.
struct Heard {
  std::string failure, last_words;
};

Heard listen(std::string_view probe, std::string_view output, std::vector<ProbeAnswer>& answers) {
  Heard heard;
  while (!output.empty()) {
    const std::size_t end = output.find('\n');
    const std::string_view line = output.substr(0, end);
    output.remove_prefix(end == std::string_view::npos ? output.size() : end + 1);
    std::string_view rest;
    if (ProbeAnswer* answer = answer_of(line, value_mark, probe, answers, rest)) {
      double value = 0;
      const auto [stop, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
      if (error != std::errc() || stop != rest.data() + rest.size() || !std::isfinite(value))
        continue;
      answer->outcome = ProbeOutcome::measured;
      answer->value = value;
    } else if (ProbeAnswer* missing = answer_of(line, missing_mark, probe, answers, rest)) {
      missing->outcome = ProbeOutcome::not_measured;
      missing->reason = rest;
    } else if (line.substr(0, failure_mark.size()) == failure_mark) {
      heard.failure = line.substr(failure_mark.size());
    } else if (!line.empty()) {
      heard.last_words = line;
    }
  }
  return heard;
}

struct HowItEnded {
  ProbeOutcome outcome;
  std::string reason;
};

HowItEnded ending(const ProcessExit& end, const Heard& heard) {
  const std::string words = heard.last_words.empty() ? "" : "; its last words: " + heard.last_words;
  if (end.timed_out) {
    return {ProbeOutcome::timed_out, "the probing process was ended at its deadline" + words};
  }
  if (end.signal != 0) {
    const char* name = ::strsignal(end.signal);  // NOLINT(concurrency-mt-unsafe): [main] only
    return {ProbeOutcome::crashed,
            "the probing process was ended by signal " + std::to_string(end.signal) +
                (name != nullptr ? std::string(" (") + name + ")" : "") + words};
  }
  if (!heard.failure.empty()) return {ProbeOutcome::failed, heard.failure};
  return {ProbeOutcome::failed, "the probing process gave no answer and ended with status " +
                                    std::to_string(end.exit_status) + words};
}

}  // namespace

std::vector<std::string> write_words(const ProbeWords& words) {
  std::vector<std::string> all = {words.probe, to_string(words.driver),
                                  std::to_string(words.device)};
  if (!words.software_device.empty()) all.push_back(words.software_device.string());
  return all;
}

ProbeWords read_words(const std::vector<std::string>& words) {
  const Error wrong(ErrorKind::invalid_argument,
                    "the words for run_probe are a probe, a driver, a device's number and, if "
                    "wished, the software device's file; pass on what the broker appended");
  if (words.size() < 3 || words.size() > 4) throw wrong;
  ProbeWords read;
  read.probe = words[0];
  const auto driver = parse_driver_choice(words[1]);
  const std::string& number = words[2];
  const auto [stop, error] =
      std::from_chars(number.data(), number.data() + number.size(), read.device);
  if (!driver || error != std::errc() || stop != number.data() + number.size()) throw wrong;
  read.driver = *driver;
  if (words.size() == 4) read.software_device = words[3];
  return read;
}

void tell_value(std::string_view name, double value) {
  char text[64] = {};
  const auto [stop, error] = std::to_chars(text, text + sizeof text, value);
  if (error == std::errc()) tell(value_mark, std::string(name) + " " + std::string(text, stop));
}

void tell_missing(std::string_view name, std::string_view reason) {
  tell(missing_mark, std::string(name) + " " + std::string(reason));
}

void tell_failure(std::string_view reason) {
  std::string one_line(reason);
  for (char& letter : one_line) {
    if (letter == '\n') letter = ' ';
  }
  tell(failure_mark, one_line);
}

void take_answers(std::string_view probe, const ProcessExit& end,
                  std::vector<ProbeAnswer>& answers) {
  const Heard heard = listen(probe, end.output, answers);
  const HowItEnded how = ending(end, heard);
  for (ProbeAnswer& answer : answers) {
    const bool open = answer.outcome == ProbeOutcome::not_measured && answer.reason.empty();
    if (!open || !belongs(probe, answer.name)) continue;
    answer.outcome = how.outcome;
    answer.reason = how.reason;
  }
}

}  // namespace ctxbroker::detail
