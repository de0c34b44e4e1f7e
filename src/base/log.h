// The log: spdlog behind five functions. Lines go to stderr. Never called per row or inside a step.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace avocet {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Lines below `level` are dropped. Call once, before threads start.
void InitLog(LogLevel level);

void LogLine(LogLevel level, std::string_view line);

template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogWarning(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  LogLine(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace avocet
