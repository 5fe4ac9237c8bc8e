#include "runtime/measure/room.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>

#include <unistd.h>

#include "planner/core/json.h"
#include "planner/core/text.h"
#include "runtime/measure/host.h"
#include "runtime/measure/machine.h"
#include "runtime/ops/device.h"

namespace braid::measure {

namespace {

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Of one rank, for the others.
std::string room_text(Bytes needed, c10::Device device) {
  std::string place = fmt::format("the memory of {}", host_name());
  Bytes free = free_host_memory();
  if (const auto gpu = ops::device_facts(device)) {
    place = fmt::format("the GPU {} of {}", gpu->bus, host_name());
    free = Bytes(gpu->free);
  }
  const Json json{{"place", place}, {"needed", needed.value()}, {"free", free.value()}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::optional<Shortage> find_shortage(const Plan& plan, const train::DryOptions& options,
                                      comm::Group& world, c10::Device device) {
  if (world.size() != plan.cluster.num_devices()) return std::nullopt;
  const Bytes mine = train::dry_run(plan, world.rank(), options).total();
  std::map<std::string, Shortage> places;
  for (const std::string& text : gather_texts(room_text(mine, device), world, device)) {
    const Json json = parse_json(text, "what a rank needs");
    JsonObject object{JsonValue(json, "what a rank needs")};
    const std::string name = object.string("place");
    const Bytes needed(object.integer("needed")), free(object.integer("free"));
    object.finish();
    const auto [place, added] = places.try_emplace(name, Shortage{name, 0, Bytes(), free});
    place->second.ranks += 1;
    place->second.needed += needed;
    place->second.free = std::min(place->second.free, free);
  }
  std::optional<Shortage> worst;
  for (const auto& [name, place] : places) {
    if (place.needed <= place.free) continue;
    if (!worst || place.needed - place.free > worst->needed - worst->free) worst = place;
  }
  return worst;
}

Mistake mistake_of(const Shortage& shortage, const std::string& where) {
  return {
      fmt::format("{} rank{} at least {} of {}, and {} are free", shortage.ranks,
                  shortage.ranks == 1 ? " needs" : "s need", format_bytes(shortage.needed),
                  shortage.place, format_bytes(shortage.free)),
      where,
      "see what each stage holds with 'braid train --dry-run', plan with a smaller --memory, or "
      "run on more or larger machines"};
}

}  // namespace braid::measure
