#pragma once
// Reads the profile files that Hetu-Galvatron writes and turns them into one Braid profile that
// carries model and cluster too.

#include <filesystem>
#include <vector>

#include "planner/profile/profile.h"

namespace braid {

struct GalvatronLayers {
  std::int64_t hidden = 0, sequence = 0;
  int count = 0;
};
// "4096:2048:32" or several separated by commas.
std::vector<GalvatronLayers> parse_galvatron_layers(const std::string& text);

struct GalvatronSource {
  std::filesystem::path
      hardware;  // folder with allreduce_bandwidth_*, p2p_bandwidth_*, sp_time_*, …
  std::filesystem::path model;  // folder with computation_profiling_* and memory_profiling_*
  std::vector<GalvatronLayers> layers;
  int nodes = 1;
  int devices_per_node = 8;
};

Profile import_galvatron(const GalvatronSource& source);

}  // namespace braid
