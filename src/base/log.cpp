#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace avocet {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& Logger() {
  static const auto logger = [] {
    auto made = spdlog::stderr_color_mt("avocet");
    made->set_pattern("%^%L%$ %m-%d %H:%M:%S.%e %v");
    return made;
  }();
  return *logger;
}

}  // namespace

void InitLog(LogLevel level) {
  Logger().set_level(ToSpdlog(level));
}

void LogLine(LogLevel level, std::string_view line) {
  Logger().log(ToSpdlog(level), "{}", line);
}

}  // namespace avocet
