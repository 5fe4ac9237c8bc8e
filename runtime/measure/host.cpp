#include "runtime/measure/host.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace braid::measure {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// The file's first number; "max" and absence are none.
std::optional<std::int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  std::int64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;
}

// The number behind a name, as in memory.stat and meminfo.
std::optional<std::int64_t> number_of(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string word; in >> word;)
    if (std::int64_t number = 0; word == name && in >> number) return number;
  return std::nullopt;
}

// Files of a control group, by version.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* cache;  // in memory.stat: page cache that goes first
};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file"};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};

std::int64_t left_in_group(const fs::path& folder, const GroupFiles& files) {
  const auto limit = number_in(folder / files.limit);
  const auto used = number_in(folder / files.used);
  if (!limit || !used) return kNoLimit;
  const std::int64_t cache = number_of(folder / "memory.stat", files.cache).value_or(0);
  return *limit - std::max(std::int64_t{0}, *used - cache);
}

// The least that a control group or one around it leaves. Where the path is that of the host, and
// not seen in a container, its root is the container's own.
std::int64_t left_around(const fs::path& top, fs::path inside, const GroupFiles& files) {
  std::int64_t least = left_in_group(top, files);
  inside = inside.relative_path();
  for (; !inside.empty(); inside = inside.parent_path())
    least = std::min(least, left_in_group(top / inside, files));
  return least;
}

std::int64_t left_by_groups(const fs::path& root) {
  std::int64_t least = std::min(left_in_group(root / "sys/fs/cgroup", kVersion2),
                                left_in_group(root / "sys/fs/cgroup/memory", kVersion1));
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path inside = line.substr(second + 1);
    if (controllers.empty())
      least = std::min(least, left_around(root / "sys/fs/cgroup", inside, kVersion2));
    if (controllers == "memory")
      least = std::min(least, left_around(root / "sys/fs/cgroup/memory", inside, kVersion1));
  }
  return least;
}

// Of the address space, under ulimit -v.
std::int64_t left_by_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  const std::int64_t used = number_in("/proc/self/statm").value_or(0) * sysconf(_SC_PAGESIZE);
  return static_cast<std::int64_t>(limit.rlim_cur) - used;
}

}  // namespace

Bytes free_host_memory(const fs::path& root) {
  constexpr std::int64_t kKibi = 1024;
  const auto available = number_of(root / "proc/meminfo", "MemAvailable:");
  const std::int64_t least =
      std::min({available ? *available * kKibi : kNoLimit, left_by_groups(root), left_by_limit()});
  return Bytes(std::max(std::int64_t{0}, least));
}

Bytes within_control_group(Bytes memory) {
  // Version 2 of control groups, then version 1. "max" and absence are no numbers, and no limit.
  for (const char* file :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream in(file);
    std::int64_t limit = 0;
    if (in >> limit && limit > 0) memory = std::min(memory, Bytes(limit));
  }
  return memory;
}

}  // namespace braid::measure
