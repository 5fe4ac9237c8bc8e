#include "planner/profile/galvatron_import.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "planner/core/error.h"
#include "planner/core/json.h"
#include "planner/core/text.h"

namespace braid {

namespace {

constexpr double kMegabyte = 1048576.0;
constexpr double kMegabytePerMillisecond = kMegabyte * 1e3;  // in bytes per second
// Megabytes, milliseconds, or megabytes a millisecond, whatever the figure is of.
constexpr RealLimit kGiven{"figure of Galvatron's", 1e-9, 1e9};
constexpr RealLimit kGivenOrZero{"figure of Galvatron's", 0, 1e9};

std::filesystem::path find_file(const std::filesystem::path& folder, const std::string& prefix) {
  std::error_code code;
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code))
    if (entry.path().filename().string().starts_with(prefix) && entry.path().extension() == ".json")
      found.push_back(entry.path());
  if (code)
    throw Error({.what = fmt::format("cannot list the folder: {}", code.message()),
                 .where = folder.string(),
                 .fix = "pass the folder that holds Galvatron's JSON files"});
  std::ranges::sort(found);
  if (found.empty())
    throw Error({.what = fmt::format("no file {}*.json here", prefix),
                 .where = folder.string(),
                 .fix = "pass the folder that holds Galvatron's JSON files"});
  return found.front();
}

// The integer between `before` and the next character that is no digit; none when `before` is
// absent.
std::optional<int> number_after(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return std::nullopt;
  int value = 0;
  const char* begin = text.data() + at + before.size();
  const auto result = std::from_chars(begin, text.data() + text.size(), value);
  if (result.ec != std::errc() || value < 1) return std::nullopt;
  return value;
}

std::string hardware_file(const std::string& stem, const GalvatronSource& source) {
  return fmt::format("{}_{}nodes_{}gpus_per_node", stem, source.nodes, source.devices_per_node);
}

void read_bandwidths(const GalvatronSource& source, Profile& profile) {
  const int world = source.nodes * source.devices_per_node;
  const auto reduce = find_file(source.hardware, hardware_file("allreduce_bandwidth", source));
  const Json reduce_json = read_json(reduce);
  JsonObject reduce_object{JsonValue(reduce_json, reduce.string())};
  for (const auto& [key, value] : reduce_object.entries()) {
    const auto ranks = number_after(key, "allreduce_size_");
    if (!ranks)
      value.fail("this key is not one Galvatron writes", "expected allreduce_size_N_consec_0|1");
    const bool consecutive = key.ends_with("_consec_1");
    profile.bandwidths.push_back({Collective::all_reduce, *ranks,
                                  consecutive ? 1 : std::max(1, world / *ranks),
                                  BytesPerSecond(value.number(kGiven) * kMegabytePerMillisecond)});
  }
  const auto pairs = find_file(source.hardware, hardware_file("p2p_bandwidth", source));
  const Json pairs_json = read_json(pairs);
  JsonObject pairs_object{JsonValue(pairs_json, pairs.string())};
  for (const auto& [key, value] : pairs_object.entries()) {
    const auto stages = number_after(key, "pp_size_");
    if (!stages) value.fail("this key is not one Galvatron writes", "expected pp_size_N");
    profile.bandwidths.push_back({Collective::point_to_point, 2, std::max(1, world / *stages),
                                  BytesPerSecond(value.number(kGiven) * kMegabytePerMillisecond)});
  }
}

// Sizes were swept on groups of consecutive devices.
void read_size_sweeps(const GalvatronSource& source, Profile& profile) {
  const auto file = find_file(source.hardware, hardware_file("sp_time", source));
  const Json json = read_json(file);
  JsonObject object{JsonValue(json, file.string())};
  for (const auto& [key, value] : object.entries()) {
    const bool reduce = key.starts_with("allreduce_size_");
    const auto ranks = number_after(key, reduce ? "allreduce_size_" : "all2all_size_");
    const std::size_t tail = key.rfind('_', key.rfind("MB_time"));
    const auto megabytes =
        tail == std::string::npos ? std::nullopt : number_after(key.substr(tail), "_");
    if (!ranks || !megabytes)
      value.fail("this key is not one Galvatron writes", "expected allreduce_size_N_SMB_time");
    profile.collectives.push_back({reduce ? Collective::all_reduce : Collective::all_to_all, *ranks,
                                   1, Bytes(std::int64_t{*megabytes} << 20),
                                   Seconds(value.number(kGiven) * 1e-3)});
  }
}

std::string sequence_key(const std::vector<GalvatronLayers>& layers) {
  if (layers.size() == 1) return std::to_string(layers.front().sequence);
  std::string key = "[";
  for (std::size_t i = 0; i < layers.size(); ++i)
    key += fmt::format("{}{}", i > 0 ? "," : "", layers[i].sequence);
  return key + "]";
}

BySplit read_megabytes(JsonObject object) {
  BySplit values;
  for (const auto& [key, value] : object.entries())
    if (const auto split = number_after("#" + key, "#"))
      values[*split] = value.number(kGivenOrZero) * kMegabyte;
  if (values.empty())
    object.fail("no split was measured", "profile at least one tensor-parallel degree");
  return values;
}

void read_compute(const GalvatronSource& source, Profile& profile) {
  const auto file = find_file(source.model, "computation_profiling_");
  const Json json = read_json(file);
  JsonObject object{JsonValue(json, file.string())};
  for (const auto& [key, value] : object.entries()) {
    if (!key.starts_with("layertype_")) continue;  // raw runs, of which the rest is derived
    const auto samples = number_after(key, "_bsz");
    const auto sequence = number_after(key, "_seq");
    if (!samples || !sequence)
      value.fail("this key is not one Galvatron writes", "expected layertype_I_bszB_seqS");
    const bool outside = key.starts_with("layertype_other");
    const auto index = outside ? 0 : [&] {
      const std::size_t at = std::string_view("layertype_").size();
      return static_cast<std::size_t>(key[at] - '0');
    }();
    if (!outside && index >= source.layers.size()) continue;
    MeasuredLayer& layer = outside ? profile.layers.back() : profile.layers[index];
    ComputeSample sample;
    sample.samples = static_cast<double>(*samples);
    sample.sequence = *sequence;
    sample.forward = Seconds(value.number(kGiven) * *samples * 1e-3);
    layer.compute.push_back(sample);
  }
  for (const MeasuredLayer& layer : profile.layers)
    if (layer.compute.empty())
      throw Error({.what = fmt::format("no compute time for layer type '{}'", layer.type),
                   .where = file.string(),
                   .fix = "pass as many h:s:n entries in --layers as the profile has layer types"});
}

void read_memory(const GalvatronSource& source, Profile& profile) {
  const auto file = find_file(source.model, "memory_profiling_");
  const Json json = read_json(file);
  JsonObject object{JsonValue(json, file.string())};
  for (std::size_t i = 0; i < source.layers.size(); ++i) {
    JsonObject types = object.object(fmt::format("layertype_{}_sp", i));
    JsonObject entry = types.object(std::to_string(source.layers[i].sequence));
    MeasuredLayer& layer = profile.layers[i];
    layer.parameter_bytes = entry.number("parameter_size", kGiven) * kMegabyte;
    JsonObject saved = entry.object("tp_activation_per_bsz_dict");
    layer.saved = read_megabytes(saved);
    layer.saved_full = saved.number("checkpoint", kGivenOrZero) * kMegabyte;
  }
  const auto outside = [&](const std::string& where) {
    JsonObject placements = object.object("other_memory_pp_" + where + "_sp");
    JsonObject entry = placements.object(sequence_key(source.layers));
    return MeasuredOutside{read_megabytes(entry.object("model_states")),
                           read_megabytes(entry.object("activation"))};
  };
  profile.only_stage = outside("off");
  profile.first_stage = outside("on_first");
  profile.last_stage = outside("on_last");
}

// Galvatron's files say nothing of heads or vocabulary. A block becomes a pair of matrices of the
// measured size (in multiples of 64, so that it splits), embedding and head a table of it.
Model imported_model(const GalvatronSource& source, const Profile& profile) {
  constexpr double kStateBytes =
      16;  // of one parameter: weight, gradient, master copy, two moments
  Model model;
  model.name = profile.name;
  model.family = "galvatron-profile";
  model.sequence = source.layers.front().sequence;
  const auto add = [&](std::string type, LayerKind kind, const GalvatronLayers& layers, int count,
                       double parameters) {
    LayerShape shape;
    shape.kind = kind;
    shape.tokens = layers.sequence;
    shape.hidden = layers.hidden;
    const auto width =
        std::max<std::int64_t>(1, std::llround(parameters / static_cast<double>(layers.hidden)));
    (kind == LayerKind::block ? shape.ffn : shape.vocab) =
        kind == LayerKind::block ? std::max<std::int64_t>(64, width / 128 * 64) : width;
    model.types.push_back({std::move(type), shape});
    for (int i = 0; i < count; ++i)
      model.layers.push_back(static_cast<int>(model.types.size()) - 1);
  };
  const auto outside = [&](const MeasuredOutside& placement) {
    return placement.states.begin()->second / kStateBytes;
  };
  add("embedding", LayerKind::embedding, source.layers.front(), 1, outside(*profile.first_stage));
  for (std::size_t i = 0; i < source.layers.size(); ++i)
    add(profile.layers[i].type, LayerKind::block, source.layers[i], source.layers[i].count,
        *profile.layers[i].parameter_bytes / 4);
  add("head", LayerKind::head, source.layers.back(), 1, outside(*profile.last_stage));
  return model;
}

// The device itself was not profiled: only its links were. Peaks are an A100's, on which the
// profiles that ship with Galvatron were made; they enter no figure where the profile has a
// measurement. Memory is left open: the user's limit decides.
Cluster imported_cluster(const GalvatronSource& source, const Profile& profile) {
  Cluster cluster;
  cluster.name = fmt::format("{} x {} devices, imported", source.nodes, source.devices_per_node);
  cluster.device_types = {{.name = "imported",
                           .peak_bf16 = FlopsPerSecond(312e12),
                           .peak_fp32 = FlopsPerSecond(19.5e12),
                           .memory = Bytes(std::int64_t{1} << 40),
                           .memory_bandwidth = BytesPerSecond(2039e9)}};
  const auto bandwidth = [&](int ranks, int stride) {
    for (const BandwidthSample& s : profile.bandwidths)
      if (s.op == Collective::all_reduce && s.ranks == ranks && s.stride == stride)
        return s.bandwidth;
    throw Error(
        {.what = fmt::format("no all-reduce bandwidth for {} ranks at distance {}", ranks, stride),
         .where = source.hardware.string(),
         .fix = "profile every group size from 2 to the node's width"});
  };
  const int world = source.nodes * source.devices_per_node;
  const Link inside{bandwidth(std::max(2, source.devices_per_node), 1), Seconds(10e-6)};
  cluster.groups = {{source.nodes, 0, source.devices_per_node, inside}};
  cluster.between = source.nodes > 1 ? Link{bandwidth(2, world / 2), Seconds(20e-6)} : inside;
  return cluster;
}

}  // namespace

std::vector<GalvatronLayers> parse_galvatron_layers(const std::string& text) {
  std::vector<GalvatronLayers> layers;
  const char* at = text.data();
  const char* end = text.data() + text.size();
  while (true) {
    std::array<int, 3> numbers{};
    for (std::size_t i = 0; i < 3; ++i) {
      const auto result = std::from_chars(at, end, numbers[i]);
      const bool separated = i == 2 || (result.ptr != end && *result.ptr == ':');
      if (result.ec != std::errc() || numbers[i] < 1 || !separated)
        throw Error({.what = fmt::format("'{}' is not a list of hidden:sequence:layers", text),
                     .where = "--layers",
                     .fix = "write for example 4096:2048:32, or 1024:512:24,1024:512:24"});
      at = result.ptr + (i < 2 ? 1 : 0);
    }
    if (numbers[0] > limits::kWidth.high || numbers[1] > limits::kTokens.high ||
        numbers[2] > limits::kLayers.high - 2)
      throw Error(
          {.what = fmt::format("{}:{}:{} is no model's", numbers[0], numbers[1], numbers[2]),
           .where = "--layers",
           .fix =
               fmt::format("write a hidden size up to {}, a sequence up to {} and up to "
                           "{} layers",
                           limits::kWidth.high, limits::kTokens.high, limits::kLayers.high - 2)});
    layers.push_back({numbers[0], numbers[1], numbers[2]});
    if (at == end) return layers;
    if (*at != ',')
      throw Error({.what = fmt::format("'{}' is not a list of hidden:sequence:layers", text),
                   .where = "--layers",
                   .fix = "separate layer types with commas"});
    ++at;
  }
}

Profile import_galvatron(const GalvatronSource& source) {
  Profile profile;
  profile.name = source.model.filename().string();
  profile.source = "Hetu-Galvatron profile files";
  profile.gradient_precision = Precision::bf16;  // Galvatron's bf16 runs keep bf16 gradients
  for (std::size_t i = 0; i < source.layers.size(); ++i)
    profile.layers.push_back({.type = fmt::format("layer{}", i),
                              .compute = {},
                              .parameter_bytes = std::nullopt,
                              .saved = {},
                              .saved_full = std::nullopt});
  profile.layers.push_back({.type = "outside",
                            .compute = {},
                            .parameter_bytes = std::nullopt,
                            .saved = {},
                            .saved_full = std::nullopt});
  read_compute(source, profile);
  read_memory(source, profile);
  read_bandwidths(source, profile);
  read_size_sweeps(source, profile);
  const auto overlap = find_file(source.hardware, "overlap_coefficient");
  const Json json = read_json(overlap);
  profile.overlap_slowdown =
      JsonObject{JsonValue(json, overlap.string())}.at("overlap_coe").number(limits::kSlowdown);
  profile.context = Bytes(std::int64_t{1} << 30);  // what Galvatron sets aside on every device
  profile.allocator_slack = 0.0;                   // its figures are of reserved memory already
  profile.cluster = imported_cluster(source, profile);
  profile.model = imported_model(source, profile);
  return profile;
}

}  // namespace braid
