// The host as hwloc sees it: what the process may use of it.

#include <hwloc.h>

#include <algorithm>
#include <memory>

#include "planner/core/error.h"
#include "runtime/measure/host.h"

namespace braid::measure {

namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

Topology load() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0)
    throw Error({.what = "hwloc cannot begin to look at this machine",
                 .where = "hwloc",
                 .fix = "free some memory"});
  Topology owned(topology);
  if (hwloc_topology_load(topology) != 0)
    throw Error({.what = "hwloc cannot find out what this machine is",
                 .where = "hwloc",
                 .fix = "see whether lstopo works here"});
  return owned;
}

int count(const Topology& topology, hwloc_obj_type_t type) {
  return std::max(1, hwloc_get_nbobjs_by_type(topology.get(), type));
}

Bytes last_cache(const Topology& topology) {
  std::uint64_t largest = 0;
  for (const hwloc_obj_type_t type :
       {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE}) {
    for (hwloc_obj_t cache = hwloc_get_next_obj_by_type(topology.get(), type, nullptr);
         cache != nullptr; cache = hwloc_get_next_obj_by_type(topology.get(), type, cache))
      largest = std::max<std::uint64_t>(largest, cache->attr->cache.size);
  }
  return Bytes(static_cast<std::int64_t>(largest));
}

}  // namespace

Host find_host() {
  const Topology topology = load();
  Host host;
  const hwloc_obj_t package = hwloc_get_obj_by_type(topology.get(), HWLOC_OBJ_PACKAGE, 0);
  const char* model =
      package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
  host.cpu = model == nullptr ? "CPU" : model;
  host.packages = count(topology, HWLOC_OBJ_PACKAGE);
  host.cores = count(topology, HWLOC_OBJ_CORE);
  host.numa_nodes = count(topology, HWLOC_OBJ_NUMANODE);
  host.last_cache = last_cache(topology);
  const hwloc_obj_t root = hwloc_get_root_obj(topology.get());
  host.memory = within_control_group(Bytes(static_cast<std::int64_t>(root->total_memory)));
  return host;
}

}  // namespace braid::measure
