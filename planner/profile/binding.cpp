#include "planner/profile/binding.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "planner/core/error.h"
#include "planner/core/text.h"
#include "planner/model/fields.h"

namespace braid {

namespace {

// A layer reaches the rate of the best matrix product at most; medians of noisy times may pass it.
constexpr double kNoise = 1.25;

std::string differs(std::string_view what, std::string_view there, std::string_view here) {
  return fmt::format("{}: {} in the profile, {} here", what, there, here);
}

const LayerType* type_named(const Model& model, const std::string& name) {
  const auto found = std::ranges::find(model.types, name, &LayerType::name);
  return found == model.types.end() ? nullptr : &*found;
}

// A model that was imported from another system's times has no heads.
bool has_shapes(const Model& model) {
  return std::ranges::all_of(model.types, [](const LayerType& type) {
    return type.shape.kind != LayerKind::block || type.shape.heads > 0;
  });
}

// The first field of a shape that any time depends on and that differs.
std::string shape_misfit(const LayerType& there, const LayerType& here) {
  const LayerShape& a = there.shape;
  const LayerShape& b = here.shape;
  const auto named = [&](std::string_view field) { return fmt::format("{}.{}", here.name, field); };
  if (a.kind != b.kind) return differs(named("kind"), name_of(a.kind), name_of(b.kind));
  for (const SizeField& field : kSizeFields)
    if (a.*field.member != b.*field.member)
      return differs(named(field.name), std::to_string(a.*field.member),
                     std::to_string(b.*field.member));
  for (const FlagField& field : kFlagFields)
    if (a.*field.member != b.*field.member)
      return differs(named(field.name), a.*field.member ? "true" : "false",
                     b.*field.member ? "true" : "false");
  const auto other = [&](const char* field) { return fmt::format("{} differs", named(field)); };
  if (a.attention != b.attention) return other("attention");
  if (a.activation != b.activation) return other("activation");
  if (a.norm != b.norm) return other("norm");
  return {};
}

void compare_layers(const Profile& profile, const Model& model, std::vector<std::string>& lines) {
  if (!profile.model || !has_shapes(*profile.model)) return;
  for (const LayerType& here : model.types) {
    const LayerType* there = type_named(*profile.model, here.name);
    if (there == nullptr) {
      lines.push_back(fmt::format("layers '{}': not in the profile", here.name));
    } else if (std::string line = shape_misfit(*there, here); !line.empty()) {
      lines.push_back(std::move(line));
    }
  }
}

// Without a model the samples say at which length they were taken.
void compare_sequence(const Profile& profile, const Model& model, std::vector<std::string>& lines) {
  if (profile.model) return;
  for (const LayerType& type : model.types) {
    const MeasuredLayer* layer = profile.layer(type.name);
    if (layer == nullptr || layer->compute.empty()) continue;
    const auto length = [&](const ComputeSample& s) { return s.sequence == type.shape.tokens; };
    if (std::ranges::none_of(layer->compute, length))
      lines.push_back(differs(fmt::format("{}.tokens", type.name),
                              std::to_string(layer->compute.front().sequence),
                              std::to_string(type.shape.tokens)));
  }
}

// Device types that the cluster's nodes have.
std::set<std::string> devices_of(const Cluster& cluster) {
  std::set<std::string> names;
  for (const NodeGroup& group : cluster.groups)
    names.insert(cluster.device_types[static_cast<std::size_t>(group.device_type)].name);
  return names;
}

void compare_devices(const Profile& profile, const Cluster& cluster,
                     std::vector<std::string>& lines) {
  if (!profile.cluster || (profile.model && !has_shapes(*profile.model))) return;
  const std::set<std::string> there = devices_of(*profile.cluster);
  for (const std::string& device : devices_of(cluster))
    if (!there.contains(device))
      lines.push_back(
          differs("device", fmt::format("'{}'", *there.begin()), fmt::format("'{}'", device)));
}

}  // namespace

std::vector<std::string> misfits(const Profile& profile, const ProfileUse& use) {
  std::vector<std::string> lines;
  if (!profile.layers.empty()) {
    compare_layers(profile, use.model, lines);
    compare_sequence(profile, use.model, lines);
  }
  compare_devices(profile, use.cluster, lines);
  if (profile.precision != use.precision)
    lines.push_back(differs("precision", name_of(profile.precision), name_of(use.precision)));
  const auto program = std::ranges::find(profile.taken_on, "program", &Fact::name);
  if (!use.program.empty() && program != profile.taken_on.end() && program->value != use.program)
    lines.push_back(differs("program", program->value, use.program));
  return lines;
}

std::string not_comparable(const Profile& profile) {
  if (profile.layers.empty()) return {};
  if (profile.model && !has_shapes(*profile.model)) return "layer shapes, sequence and device";
  if (!profile.model) return profile.cluster ? "layer shapes" : "layer shapes and device";
  return profile.cluster ? "" : "device";
}

namespace {

FlopsPerSecond highest_peak(const Cluster& cluster, Precision precision) {
  FlopsPerSecond peak;
  for (const DeviceType& device : cluster.device_types)
    peak = std::max(peak, device.peak(precision));
  return peak;
}

// Calls visit(layer, sample, least) for every timed forward of a known layer; `least` is its time
// at `peak`.
template <class Visit>
void for_each_forward(const Profile& profile, const Model& model, FlopsPerSecond peak,
                      const Visit& visit) {
  for (const MeasuredLayer& layer : profile.layers) {
    const LayerType* type = type_named(model, layer.type);
    if (type == nullptr) continue;
    for (const ComputeSample& sample : layer.compute) {
      if (sample.sequence != type->shape.tokens) continue;
      const double share = sample.samples / (static_cast<double>(sample.split) * sample.context);
      visit(layer, sample, forward_flops(type->shape).total() * share / peak);
    }
  }
}

}  // namespace

std::vector<std::string> impossible_times(const Profile& profile, const ProfileUse& use) {
  std::vector<std::string> lines;
  const Model& model = profile.model ? *profile.model : use.model;
  const Cluster& cluster = profile.cluster ? *profile.cluster : use.cluster;
  if (!has_shapes(model)) return lines;
  for_each_forward(profile, model, highest_peak(cluster, profile.precision),
                   [&](const MeasuredLayer& layer, const ComputeSample& sample, Seconds least) {
                     if (kNoise * sample.forward >= least) return;
                     lines.push_back(fmt::format(
                         "{}, {:g} samples: forward in {}, {} at peak", layer.type, sample.samples,
                         format_seconds(sample.forward), format_seconds(least)));
                   });
  return lines;
}

void raise_peaks(Profile& profile) {
  if (!profile.model || !profile.cluster || !has_shapes(*profile.model)) return;
  double factor = 1;
  for_each_forward(profile, *profile.model, highest_peak(*profile.cluster, profile.precision),
                   [&](const MeasuredLayer&, const ComputeSample& sample, Seconds least) {
                     if (sample.forward > Seconds(0))
                       factor = std::max(factor, least / sample.forward);
                   });
  for (DeviceType& device : profile.cluster->device_types) {
    FlopsPerSecond& peak =
        profile.precision == Precision::fp32 ? device.peak_fp32 : device.peak_bf16;
    peak = factor * peak;
  }
}

void expect_holds(const Profile& profile, const std::string& file, const ProfileUse& use) {
  if (const auto lines = misfits(profile, use); !lines.empty())
    throw Error(
        {.what = fmt::format("this profile was measured for something else: {}", join(lines, "; ")),
         .where = file,
         .fix = "ask for what it was measured for, or measure again: braid profile model"});
  if (const auto lines = impossible_times(profile, use); !lines.empty())
    throw Error(
        {.what = fmt::format(
             "times beyond what the devices can do: {}{}", lines.front(),
             lines.size() > 1 ? fmt::format(", and {} more", lines.size() - 1) : std::string()),
         .where = fmt::format("{}: layers", file),
         .fix = "correct \"peak\" in the cluster, or measure again: braid "
                "profile model"});
}

}  // namespace braid
