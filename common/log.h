// One line per event, key=value, to stderr: `2026-01-02T03:04:05.678Z INFO event=finished
// request_id=r1 tokens=128`.
//
//   LogInfo("finished", {{"request_id", id}, {"output_tokens", n}});
//
// Values with a blank, a quote or a control character are quoted and escaped. No prompt or output
// text, ever. Thread-safe. DEBUG is off unless SetLogLevel says so.
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

namespace weightless {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

struct LogField {
  std::string_view key;
  std::string value;

  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  template <typename Number>
  requires std::integral<Number> || std::floating_point<Number> LogField(std::string_view k,
                                                                         Number v)
      : key(k), value(std::to_string(v)) {}
};

void SetLogLevel(LogLevel level);
// Accepts debug, info, warning, error; false for anything else.
bool ParseLogLevel(std::string_view text, LogLevel& level);

void LogDebug(std::string_view event, std::initializer_list<LogField> fields = {});
void LogInfo(std::string_view event, std::initializer_list<LogField> fields = {});
void LogWarning(std::string_view event, std::initializer_list<LogField> fields = {});
void LogError(std::string_view event, std::initializer_list<LogField> fields = {});

}  // namespace weightless
