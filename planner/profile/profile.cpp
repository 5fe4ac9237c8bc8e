#include "planner/profile/profile.h"

#include <fmt/core.h>

#include <algorithm>

#include "planner/core/error.h"
#include "planner/core/json.h"

namespace braid {

namespace {

const std::vector<std::string> kCollectives = {"all_reduce", "all_gather", "reduce_scatter",
                                               "all_to_all", "point_to_point"};
const std::vector<std::string> kPrecisions = {"fp32", "bf16"};

constexpr IntRange kRanks{1, 1 << 20};

Seconds read_time(const JsonValue& value) { return Seconds(value.number(0, 1e9)); }

CollectiveSample read_collective(const JsonValue& value) {
  JsonObject object{value};
  CollectiveSample sample;
  sample.op = static_cast<Collective>(object.at("op").choice(kCollectives));
  sample.ranks = static_cast<int>(object.integer("ranks", kRanks));
  sample.stride = static_cast<int>(object.integer("stride", kRanks));
  sample.bytes = Bytes(object.integer("bytes", kPositive));
  const JsonValue seconds = object.at("seconds");
  sample.seconds = read_time(seconds);
  if (sample.seconds == Seconds())
    seconds.fail("a collective cannot take no time", "measure again");
  object.finish();
  return sample;
}

BandwidthSample read_bandwidth(const JsonValue& value) {
  JsonObject object{value};
  BandwidthSample sample;
  sample.op = static_cast<Collective>(object.at("op").choice(kCollectives));
  sample.ranks = static_cast<int>(object.integer("ranks", kRanks));
  sample.stride = static_cast<int>(object.integer("stride", kRanks));
  sample.bandwidth = BytesPerSecond(object.at("bytes_per_second").number(1, 1e18));
  object.finish();
  return sample;
}

ComputeSample read_compute(const JsonValue& value) {
  JsonObject object{value};
  ComputeSample sample;
  sample.samples = object.at("samples").number(1e-9, 1e9);
  sample.sequence = object.integer("sequence", kPositive);
  sample.split = static_cast<int>(object.integer_or("split", 1, kRanks));
  sample.forward = read_time(object.at("forward"));
  if (const auto v = object.find("backward_input")) sample.backward_input = read_time(*v);
  if (const auto v = object.find("backward_weight")) sample.backward_weight = read_time(*v);
  object.finish();
  return sample;
}

BySplit read_by_split(const JsonValue& value) {
  BySplit result;
  JsonObject object{value};
  for (const auto& [key, entry] : object.entries()) {
    int split = 0;
    for (const char c : key) {
      if (c < '0' || c > '9' || split > 100000)
        entry.fail(fmt::format("'{}' is not a number of ways to split", key),
                   "use keys such as \"1\", \"2\", \"4\"");
      split = split * 10 + (c - '0');
    }
    if (split < 1) entry.fail("a layer is split in at least one way", "use a key from \"1\" on");
    result[split] = entry.number(0, 1e18);
  }
  return result;
}

Json by_split_json(const BySplit& values) {
  Json json = Json::object();
  for (const auto& [split, bytes] : values) json[std::to_string(split)] = bytes;
  return json;
}

MeasuredLayer read_layer(const JsonValue& value) {
  JsonObject object{value};
  MeasuredLayer layer;
  layer.type = object.string("type");
  for (const JsonValue& sample : object.array("compute"))
    layer.compute.push_back(read_compute(sample));
  if (const auto v = object.find("parameter_bytes")) layer.parameter_bytes = v->number(0, 1e18);
  if (const auto v = object.find("saved")) layer.saved = read_by_split(*v);
  if (const auto v = object.find("saved_full")) layer.saved_full = v->number(0, 1e18);
  object.finish();
  return layer;
}

std::optional<MeasuredOutside> read_outside(JsonObject& parent, const std::string& key) {
  const auto value = parent.find(key);
  if (!value) return std::nullopt;
  JsonObject object{*value};
  MeasuredOutside outside{read_by_split(object.at("states")),
                          read_by_split(object.at("activations"))};
  object.finish();
  return outside;
}

}  // namespace

std::string name_of(Collective op) { return kCollectives[static_cast<std::size_t>(op)]; }

const MeasuredLayer* Profile::layer(const std::string& type) const {
  const auto found = std::ranges::find(layers, type, &MeasuredLayer::type);
  return found == layers.end() ? nullptr : &*found;
}

Profile profile_from_json(const Json& json, const std::string& source) {
  JsonObject object{JsonValue(json, source)};
  expect_format(object, "braid.profile", 1);
  Profile profile;
  profile.name = object.string("name");
  profile.source = object.string("source");
  if (const auto v = object.find("model")) profile.model = model_from_json(v->raw(), v->path());
  if (const auto v = object.find("cluster"))
    profile.cluster = cluster_from_json(v->raw(), v->path());
  profile.precision = static_cast<Precision>(object.at("precision").choice(kPrecisions));
  profile.gradient_precision =
      static_cast<Precision>(object.at("gradient_precision").choice(kPrecisions));
  for (const JsonValue& v : object.array("bandwidths"))
    profile.bandwidths.push_back(read_bandwidth(v));
  for (const JsonValue& v : object.array("collectives"))
    profile.collectives.push_back(read_collective(v));
  for (const JsonValue& v : object.array("layers")) {
    profile.layers.push_back(read_layer(v));
    if (profile.layer(profile.layers.back().type) != &profile.layers.back())
      v.fail(fmt::format("the layer type '{}' stands twice", profile.layers.back().type),
             "merge the two entries");
  }
  profile.only_stage = read_outside(object, "only_stage");
  profile.first_stage = read_outside(object, "first_stage");
  profile.last_stage = read_outside(object, "last_stage");
  if (const auto v = object.find("overlap_slowdown")) profile.overlap_slowdown = v->number(1, 100);
  if (const auto v = object.find("context_bytes")) profile.context = Bytes(v->integer(kNatural));
  if (const auto v = object.find("allocator_slack")) profile.allocator_slack = v->number(0, 1);
  object.finish();
  return profile;
}

Profile read_profile(const std::filesystem::path& file) {
  return profile_from_json(read_json(file), file.string());
}

Json to_json(const Profile& profile) {
  Json json{{"format", "braid.profile"},
            {"version", 1},
            {"name", profile.name},
            {"source", profile.source}};
  if (profile.model) json["model"] = to_json(*profile.model);
  if (profile.cluster) json["cluster"] = to_json(*profile.cluster);
  json["precision"] = kPrecisions[static_cast<std::size_t>(profile.precision)];
  json["gradient_precision"] = kPrecisions[static_cast<std::size_t>(profile.gradient_precision)];
  if (profile.overlap_slowdown) json["overlap_slowdown"] = *profile.overlap_slowdown;
  if (profile.context) json["context_bytes"] = profile.context->value();
  if (profile.allocator_slack) json["allocator_slack"] = *profile.allocator_slack;
  json["layers"] = Json::array();
  for (const MeasuredLayer& layer : profile.layers) {
    Json entry{{"type", layer.type}};
    if (layer.parameter_bytes) entry["parameter_bytes"] = *layer.parameter_bytes;
    if (!layer.saved.empty()) entry["saved"] = by_split_json(layer.saved);
    if (layer.saved_full) entry["saved_full"] = *layer.saved_full;
    entry["compute"] = Json::array();
    for (const ComputeSample& s : layer.compute) {
      Json sample{{"samples", s.samples},
                  {"sequence", s.sequence},
                  {"split", s.split},
                  {"forward", s.forward.value()}};
      if (s.backward_input) sample["backward_input"] = s.backward_input->value();
      if (s.backward_weight) sample["backward_weight"] = s.backward_weight->value();
      entry["compute"].push_back(std::move(sample));
    }
    json["layers"].push_back(std::move(entry));
  }
  const auto outside = [&](const char* key, const std::optional<MeasuredOutside>& value) {
    if (value)
      json[key] = {{"states", by_split_json(value->states)},
                   {"activations", by_split_json(value->activations)}};
  };
  outside("only_stage", profile.only_stage);
  outside("first_stage", profile.first_stage);
  outside("last_stage", profile.last_stage);
  json["bandwidths"] = Json::array();
  for (const BandwidthSample& s : profile.bandwidths)
    json["bandwidths"].push_back({{"op", name_of(s.op)},
                                  {"ranks", s.ranks},
                                  {"stride", s.stride},
                                  {"bytes_per_second", s.bandwidth.value()}});
  json["collectives"] = Json::array();
  for (const CollectiveSample& s : profile.collectives)
    json["collectives"].push_back({{"op", name_of(s.op)},
                                   {"ranks", s.ranks},
                                   {"stride", s.stride},
                                   {"bytes", s.bytes.value()},
                                   {"seconds", s.seconds.value()}});
  return json;
}

}  // namespace braid
