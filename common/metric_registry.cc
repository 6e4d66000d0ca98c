#include "common/metric_registry.h"

#include <dirent.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace weightless {

// From 0.1 ms, so that tokens of half a millisecond can be told apart, to a minute.
const Buckets& TokenTimeBuckets() {
  static const auto& buckets = *new Buckets{
      0.0001, 0.0002, 0.0003, 0.0004, 0.0005, 0.00065, 0.0008, 0.001, 0.0013, 0.0016, 0.002, 0.003,
      0.004,  0.005,  0.0065, 0.008,  0.01,   0.015,   0.02,   0.03,  0.05,   0.075,  0.1,   0.15,
      0.2,    0.3,    0.5,    0.75,   1,      2,       5,      10,    30,     60};
  return buckets;
}
const Buckets& RequestTimeBuckets() {
  static const auto& buckets = *new Buckets{
      0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03,
      0.05,    0.075,  0.1,    0.15,   0.2,   0.3,   0.5,   0.8,   1,      1.5,  2,     3,    5,
      8,       10,     15,     20,     30,    45,    60,    120,   300,    600,  1800};
  return buckets;
}
const Buckets& BatchBuckets() {
  static const auto& buckets = *new Buckets{1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
  return buckets;
}
const Buckets& TokenCountBuckets() {
  static const auto& buckets =
      *new Buckets{0,   1,    2,    4,    8,    16,    32,    64,    128,   256,
                   512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
  return buckets;
}

Counter MakeCounter(prometheus::Registry& registry, const char* name, const char* help,
                    const prometheus::Labels& labels, prometheus::Counter* alias) {
  return Counter(&prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels),
                 alias);
}
Gauge MakeGauge(prometheus::Registry& registry, const char* name, const char* help,
                const prometheus::Labels& labels, prometheus::Gauge* alias) {
  return Gauge(&prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels),
               alias);
}
Histogram MakeHistogram(prometheus::Registry& registry, const char* name, const char* help,
                        const Buckets& buckets, const prometheus::Labels& labels,
                        prometheus::Histogram* alias) {
  return Histogram(
      &prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets),
      alias);
}

prometheus::Labels VariantLabels(const WorkerFacts& facts) {
  return {{"variant", VariantName(facts)},
          {"model", facts.model},
          {"mode", facts.mode},
          {"rank", std::to_string(facts.rank)},
          {"bands", std::to_string(facts.num_bands)},
          {"w0_encoding", facts.w0_encoding},
          {"dtype", facts.dtype},
          {"device", facts.device},
          {"numerics", facts.numerics}};
}

void AddBuildInfo(prometheus::Registry& registry) {
  MakeGauge(registry, "weightless_build_info", "1; what the program was built from, as labels.",
            {{"version", WEIGHTLESS_VERSION}, {"compiler", __VERSION__}})
      .Set(1);
}

namespace {

// Fields of /proc/self/stat from the process state on; empty when unreadable.
std::vector<std::string> StatFields() {
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(text.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

std::optional<double> BootTime() {
  std::ifstream file("/proc/stat");
  for (std::string key; file >> key;) {
    double seconds = 0;
    if (key == "btime" && file >> seconds) return seconds;
  }
  return std::nullopt;
}

int CountOpenFiles() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  int count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count - 3;  // ".", ".." and the directory itself
}

prometheus::MetricFamily Single(const char* name, const char* help, prometheus::MetricType type,
                                double value) {
  prometheus::ClientMetric metric;
  metric.counter.value = metric.gauge.value = value;
  return {.name = name, .help = help, .type = type, .metric = {metric}};
}

}  // namespace

std::vector<prometheus::MetricFamily> CollectProcess() {
  const std::vector<std::string> fields = StatFields();
  if (fields.size() < 22) return {};
  // By proc(5), counted from the state: utime 11, stime 12, starttime 19, vsize 20, rss 21.
  const auto number = [&fields](size_t i) { return std::strtod(fields[i].c_str(), nullptr); };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto page = static_cast<double>(sysconf(_SC_PAGE_SIZE));
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families = {
      Single("process_cpu_seconds_total", "CPU time of all threads.", MetricType::Counter,
             (number(11) + number(12)) / ticks),
      Single("process_virtual_memory_bytes", "Address space in use.", MetricType::Gauge,
             number(20)),
      Single("process_resident_memory_bytes", "Memory in use.", MetricType::Gauge,
             number(21) * page),
      Single("process_open_fds", "Open files and sockets.", MetricType::Gauge, CountOpenFiles())};
  if (const std::optional<double> boot = BootTime()) {
    families.push_back(Single("process_start_time_seconds", "When the process began, since 1970.",
                              MetricType::Gauge, *boot + number(19) / ticks));
  }
  return families;
}

}  // namespace weightless
