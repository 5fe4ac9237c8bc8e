#pragma once
// The computer that this process runs on, as far as its operating system and its GPUs' driver tell.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "planner/core/units.h"

namespace braid::measure {

struct Host {
  std::string cpu;  // model
  int packages = 1;
  int cores = 1;  // that this process may use
  int numa_nodes = 1;
  Bytes last_cache;  // the largest cache of the last level; 0: unknown
  Bytes memory;      // that this process may use
};
// hwloc.cpp, or no_hwloc.cpp where hwloc is absent.
Host find_host();

// What a container leaves of a machine's memory.
Bytes within_control_group(Bytes memory);

// Bytes that this process can still take without swapping: MemAvailable, within what its control
// groups (of both versions, and all those around them) and its limit of address space leave. Page
// cache counts as free. `root` is where /proc and /sys are found.
Bytes free_host_memory(const std::filesystem::path& root = "/");

struct Gpus {
  std::string driver;
  std::vector<std::string> names;
  std::string link;  // "NVLink" where every pair has one, else the slots: "PCIe 5 x16"
};
// What NVML says; nothing where there is no driver.
std::optional<Gpus> find_gpus();

}  // namespace braid::measure
