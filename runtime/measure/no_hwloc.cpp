// Stands in for hwloc.cpp where hwloc is absent: what Linux says of itself in /proc.

#include <algorithm>
#include <fstream>
#include <set>
#include <thread>

#include "runtime/measure/host.h"

namespace braid::measure {

namespace {

// "model name\t: AMD EPYC" → "AMD EPYC"; nothing where the line has another name.
std::optional<std::string> value_of(const std::string& line, const std::string& name) {
  if (!line.starts_with(name)) return std::nullopt;
  const std::size_t colon = line.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
  return begin == std::string::npos ? "" : line.substr(begin);
}

}  // namespace

Host find_host() {
  Host host;
  host.cpu = "CPU";
  std::set<std::string> packages;
  std::set<std::pair<std::string, std::string>> cores;
  std::ifstream cpus("/proc/cpuinfo");
  std::string package;
  for (std::string line; std::getline(cpus, line);) {
    if (const auto model = value_of(line, "model name")) host.cpu = *model;
    if (const auto id = value_of(line, "physical id")) packages.insert(package = *id);
    if (const auto id = value_of(line, "core id")) cores.emplace(package, *id);
  }
  host.packages = std::max(1, static_cast<int>(packages.size()));
  host.cores = cores.empty() ? std::max(1, static_cast<int>(std::thread::hardware_concurrency()))
                             : static_cast<int>(cores.size());
  std::ifstream memory("/proc/meminfo");
  for (std::string line; std::getline(memory, line);)
    if (const auto size = value_of(line, "MemTotal"))
      host.memory = within_control_group(Bytes(std::stoll(*size) * 1024));
  return host;
}

}  // namespace braid::measure
