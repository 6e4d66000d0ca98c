#include "common/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace weightless {
namespace {

spdlog::logger& Logger() {
  static const auto logger = [] {
    auto made = spdlog::stderr_logger_mt("weightless");
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %v", spdlog::pattern_time_type::utc);
    return made;
  }();
  return *logger;
}

bool NeedsQuotes(std::string_view value) {
  if (value.empty()) return true;
  for (const char c : value) {
    if (c <= ' ' || c == '"' || c == '=' || c == 127) return true;
  }
  return false;
}

void AppendValue(std::string& line, std::string_view value) {
  if (!NeedsQuotes(value)) {
    line += value;
    return;
  }
  line += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') line += '\\';
    if (c == '\n') {
      line += "\\n";
    } else if (static_cast<unsigned char>(c) < ' ' || c == 127) {
      line += '?';
    } else {
      line += c;
    }
  }
  line += '"';
}

void Write(spdlog::level::level_enum level, std::string_view name, std::string_view event,
           std::initializer_list<LogField> fields) {
  if (!Logger().should_log(level)) return;
  std::string line(name);
  line += " event=";
  AppendValue(line, event);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    AppendValue(line, field.value);
  }
  Logger().log(level, "{}", line);
}

}  // namespace

void SetLogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return Logger().set_level(spdlog::level::debug);
    case LogLevel::kInfo:
      return Logger().set_level(spdlog::level::info);
    case LogLevel::kWarning:
      return Logger().set_level(spdlog::level::warn);
    case LogLevel::kError:
      return Logger().set_level(spdlog::level::err);
  }
}

bool ParseLogLevel(std::string_view text, LogLevel& level) {
  if (text == "debug")
    level = LogLevel::kDebug;
  else if (text == "info")
    level = LogLevel::kInfo;
  else if (text == "warning")
    level = LogLevel::kWarning;
  else if (text == "error")
    level = LogLevel::kError;
  else
    return false;
  return true;
}

void LogDebug(std::string_view event, std::initializer_list<LogField> fields) {
  Write(spdlog::level::debug, "DEBUG", event, fields);
}
void LogInfo(std::string_view event, std::initializer_list<LogField> fields) {
  Write(spdlog::level::info, "INFO", event, fields);
}
void LogWarning(std::string_view event, std::initializer_list<LogField> fields) {
  Write(spdlog::level::warn, "WARNING", event, fields);
}
void LogError(std::string_view event, std::initializer_list<LogField> fields) {
  Write(spdlog::level::err, "ERROR", event, fields);
}

}  // namespace weightless
