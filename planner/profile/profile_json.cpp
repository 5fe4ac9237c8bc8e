// A profile's file, strict on the way in.

#include <fmt/core.h>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/profile/profile.h"

namespace braid {

namespace {

const std::vector<std::string> kCollectives = {"all_reduce", "all_gather", "reduce_scatter",
                                               "all_to_all", "point_to_point"};
const std::vector<std::string> kPrecisions = {"fp32", "bf16", "fp8"};
const std::vector<std::string> kTensorKinds = {"megatron", "ulysses"};

// Of a factor by which compute or communication grows beside the other.
constexpr RealLimit kOverlap{"overlap", 1, kNoProgress};

Seconds read_time(const JsonValue& value) { return Seconds(value.number(limits::kMeasuredTime)); }
// Of work that was done: rates and ratios divide by it.
Seconds read_duration(const JsonValue& value, std::string_view work) {
  const Seconds time = read_time(value);
  if (time == Seconds()) value.fail(fmt::format("{} cannot take no time", work), "measure again");
  return time;
}

std::optional<Seconds> find_time(JsonObject& object, const std::string& key) {
  const auto value = object.find(key);
  return value ? std::optional(read_time(*value)) : std::nullopt;
}
std::optional<Bytes> find_bytes(JsonObject& object, const std::string& key) {
  const auto value = object.find(key);
  return value ? std::optional(Bytes(value->integer(limits::kMessage.or_zero()))) : std::nullopt;
}

template <class Quantity>
void put(Json& json, const char* key, const std::optional<Quantity>& value) {
  if (value) json[key] = value->value();
}

Precision read_precision(const JsonValue& value) {
  return static_cast<Precision>(value.choice(kPrecisions));
}

CollectiveSample read_collective(const JsonValue& value) {
  JsonObject object{value};
  CollectiveSample sample;
  sample.op = static_cast<Collective>(object.at("op").choice(kCollectives));
  sample.ranks = static_cast<int>(object.integer("ranks", limits::kRanks));
  sample.stride = static_cast<int>(object.integer("stride", limits::kRanks));
  sample.bytes = Bytes(object.integer("bytes", limits::kMessage));
  sample.seconds = read_duration(object.at("seconds"), "a collective");
  object.finish();
  return sample;
}

BandwidthSample read_bandwidth(const JsonValue& value) {
  JsonObject object{value};
  BandwidthSample sample;
  sample.op = static_cast<Collective>(object.at("op").choice(kCollectives));
  sample.ranks = static_cast<int>(object.integer("ranks", limits::kRanks));
  sample.stride = static_cast<int>(object.integer("stride", limits::kRanks));
  sample.bandwidth = BytesPerSecond(object.at("bytes_per_second").number(limits::kBandwidth));
  object.finish();
  return sample;
}

ComputeSample read_compute(const JsonValue& value) {
  JsonObject object{value};
  ComputeSample sample;
  sample.samples = object.at("samples").number(limits::kSamples);
  sample.sequence = object.integer("sequence", limits::kTokens);
  sample.split = static_cast<int>(object.integer_or("split", 1, limits::kRanks));
  sample.forward = read_duration(object.at("forward"), "a forward pass");
  if (const auto v = object.find("kind"))
    sample.kind = static_cast<TensorKind>(v->choice(kTensorKinds));
  sample.context = static_cast<int>(object.integer_or("context", 1, limits::kRanks));
  sample.backward_input = find_time(object, "backward_input");
  sample.backward_weight = find_time(object, "backward_weight");
  const auto none = [](const std::optional<Seconds>& time) { return time && *time == Seconds(); };
  if (none(sample.backward_input) && (none(sample.backward_weight) || !sample.backward_weight))
    value.fail("a backward pass cannot take no time", "measure again, or leave its times out");
  sample.selective = find_time(object, "selective");
  sample.full = find_time(object, "full");
  sample.workspace = find_bytes(object, "workspace_bytes");
  sample.workspace_selective = find_bytes(object, "workspace_selective_bytes");
  sample.workspace_full = find_bytes(object, "workspace_full_bytes");
  object.finish();
  return sample;
}

Json compute_json(const ComputeSample& s) {
  Json json{{"samples", s.samples}, {"sequence", s.sequence}, {"split", s.split}};
  if (s.kind != TensorKind::megatron) json["kind"] = name_of(s.kind);
  if (s.context > 1) json["context"] = s.context;
  json["forward"] = s.forward.value();
  put(json, "backward_input", s.backward_input);
  put(json, "backward_weight", s.backward_weight);
  put(json, "selective", s.selective);
  put(json, "full", s.full);
  put(json, "workspace_bytes", s.workspace);
  put(json, "workspace_selective_bytes", s.workspace_selective);
  put(json, "workspace_full_bytes", s.workspace_full);
  return json;
}

OverlapSample read_overlap(const JsonValue& value) {
  JsonObject object{value};
  OverlapSample sample;
  sample.op = static_cast<Collective>(object.at("op").choice(kCollectives));
  sample.ranks = static_cast<int>(object.integer("ranks", limits::kRanks));
  sample.compute = object.at("compute").number(kOverlap);
  sample.communication = object.at("communication").number(kOverlap);
  if (const auto v = object.find("block"))
    sample.block = read_duration(*v, "a block's forward and backward");
  object.finish();
  return sample;
}

MeetingSample read_meeting(const JsonValue& value) {
  JsonObject object{value};
  MeetingSample sample;
  sample.ranks = static_cast<int>(object.integer("ranks", limits::kRanks));
  sample.apart = read_duration(object.at("apart"), "what ranks do between two meetings");
  sample.wait = object.at("wait").number(limits::kWait);
  object.finish();
  return sample;
}

UpdateSample read_update(const JsonValue& value) {
  JsonObject object{value};
  UpdateSample sample;
  sample.elements = object.integer("elements", limits::kElements);
  sample.seconds = read_duration(object.at("seconds"), "an optimizer's step");
  object.finish();
  return sample;
}

GemmSample read_gemm(const JsonValue& value) {
  JsonObject object{value};
  GemmSample sample;
  sample.precision = read_precision(object.at("precision"));
  sample.m = object.integer("m", limits::kSide);
  sample.n = object.integer("n", limits::kSide);
  sample.k = object.integer("k", limits::kSide);
  sample.rate = FlopsPerSecond(object.at("flops_per_second").number(limits::kPeak));
  object.finish();
  return sample;
}

Noise read_noise(const JsonValue& value) {
  JsonObject object{value};
  Noise noise;
  noise.measurements = static_cast<int>(object.integer("measurements", limits::kMeasurements));
  noise.typical = object.at("typical").number(limits::kNoise);
  noise.worst = object.at("worst").number(limits::kNoise);
  noise.worst_name = object.string("worst_name");
  object.finish();
  return noise;
}

struct Factor {
  const char* name;
  double Correction::*value;
};
constexpr Factor kFactors[] = {
    {"compute", &Correction::compute},   {"tensor", &Correction::tensor},
    {"context", &Correction::context},   {"sharding", &Correction::sharding},
    {"transfer", &Correction::transfer}, {"update", &Correction::update},
};

Correction read_correction(const JsonValue& value) {
  JsonObject object{value};
  Correction correction;
  for (const Factor& factor : kFactors)
    correction.*factor.value = object.at(factor.name).number(limits::kCorrection);
  correction.step_overhead = read_time(object.at("step_overhead"));
  object.finish();
  return correction;
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
    result[split] = entry.number(limits::kMeasuredBytes);
  }
  if (result.empty())
    value.fail("no split was measured",
               "add the bytes of one, such as \"1\": 1e9, or leave this out");
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
  if (const auto v = object.find("parameter_bytes"))
    layer.parameter_bytes = v->number(limits::kMeasuredBytes);
  if (const auto v = object.find("saved")) layer.saved = read_by_split(*v);
  if (const auto v = object.find("saved_full"))
    layer.saved_full = v->number(limits::kMeasuredBytes);
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

Profile profile_from_json(const Json& json, const std::string& source) {
  JsonObject object{JsonValue(json, source)};
  expect_format(object, "braid.profile", kProfileVersion);
  Profile profile;
  profile.name = object.string("name");
  profile.source = object.string("source");
  if (const auto v = object.find("model")) profile.model = model_from_json(v->raw(), v->path());
  if (const auto v = object.find("cluster"))
    profile.cluster = cluster_from_json(v->raw(), v->path());
  profile.precision = read_precision(object.at("precision"));
  profile.gradient_precision = read_precision(object.at("gradient_precision"));
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
  if (const auto v = object.find("overlap_slowdown"))
    profile.overlap_slowdown = v->number(limits::kSlowdown);
  if (const auto v = object.find("rest_gain")) profile.rest_gain = v->number(limits::kShare);
  if (const auto v = object.find("context_bytes"))
    profile.context = Bytes(v->integer(limits::kMessage.or_zero()));
  if (const auto v = object.find("allocator_slack"))
    profile.allocator_slack = v->number(limits::kShare);
  const auto list = [&](const char* key, auto read, auto& samples) {
    const auto found = object.find(key);
    if (!found) return;
    for (const JsonValue& v : found->array()) samples.push_back(read(v));
  };
  list("overlaps", read_overlap, profile.overlaps);
  list("meetings", read_meeting, profile.meetings);
  list("updates", read_update, profile.updates);
  list("gemms", read_gemm, profile.gemms);
  if (const auto v = object.find("taken_on"))
    for (const auto& [name, fact] : JsonObject(*v).entries())
      profile.taken_on.push_back({name, fact.string()});
  if (const auto v = object.find("noise")) profile.noise = read_noise(*v);
  if (const auto v = object.find("correction")) profile.correction = read_correction(*v);
  object.finish();
  return profile;
}

Profile read_profile(const std::filesystem::path& file) {
  return profile_from_json(read_json(file), file.string());
}

Json to_json(const Profile& profile) {
  Json json{{"format", "braid.profile"},
            {"version", kProfileVersion},
            {"name", profile.name},
            {"source", profile.source}};
  if (!profile.taken_on.empty()) {
    json["taken_on"] = Json::object();
    for (const Fact& fact : profile.taken_on) json["taken_on"][fact.name] = fact.value;
  }
  if (profile.noise)
    json["noise"] = {{"measurements", profile.noise->measurements},
                     {"typical", profile.noise->typical},
                     {"worst", profile.noise->worst},
                     {"worst_name", profile.noise->worst_name}};
  if (profile.model) json["model"] = to_json(*profile.model);
  if (profile.cluster) json["cluster"] = to_json(*profile.cluster);
  json["precision"] = kPrecisions[static_cast<std::size_t>(profile.precision)];
  json["gradient_precision"] = kPrecisions[static_cast<std::size_t>(profile.gradient_precision)];
  if (profile.overlap_slowdown) json["overlap_slowdown"] = *profile.overlap_slowdown;
  if (profile.rest_gain) json["rest_gain"] = *profile.rest_gain;
  if (profile.context) json["context_bytes"] = profile.context->value();
  if (profile.allocator_slack) json["allocator_slack"] = *profile.allocator_slack;
  if (profile.correction) {
    for (const Factor& factor : kFactors)
      json["correction"][factor.name] = (*profile.correction).*factor.value;
    json["correction"]["step_overhead"] = profile.correction->step_overhead.value();
  }
  for (const OverlapSample& s : profile.overlaps) {
    Json sample{{"op", name_of(s.op)},
                {"ranks", s.ranks},
                {"compute", s.compute},
                {"communication", s.communication}};
    put(sample, "block", s.block);
    json["overlaps"].push_back(std::move(sample));
  }
  for (const MeetingSample& s : profile.meetings)
    json["meetings"].push_back({{"ranks", s.ranks}, {"apart", s.apart.value()}, {"wait", s.wait}});
  for (const UpdateSample& s : profile.updates)
    json["updates"].push_back({{"elements", s.elements}, {"seconds", s.seconds.value()}});
  for (const GemmSample& s : profile.gemms)
    json["gemms"].push_back({{"precision", name_of(s.precision)},
                             {"m", s.m},
                             {"n", s.n},
                             {"k", s.k},
                             {"flops_per_second", s.rate.value()}});
  json["layers"] = Json::array();
  for (const MeasuredLayer& layer : profile.layers) {
    Json entry{{"type", layer.type}};
    if (layer.parameter_bytes) entry["parameter_bytes"] = *layer.parameter_bytes;
    if (!layer.saved.empty()) entry["saved"] = by_split_json(layer.saved);
    if (layer.saved_full) entry["saved_full"] = *layer.saved_full;
    entry["compute"] = Json::array();
    for (const ComputeSample& s : layer.compute) entry["compute"].push_back(compute_json(s));
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
