// What `braid profile hardware` found, for people.

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/profile_common.h"
#include "planner/core/text.h"
#include "planner/profile/fit.h"

namespace braid::cli {
namespace {

// "12.3 TFLOP/s", "4.56 GB/s"
std::string rate_text(double rate, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  std::size_t prefix = 0;
  while (rate >= 999.5 && prefix + 1 < std::size(kPrefixes)) {
    rate /= 1000;
    ++prefix;
  }
  return fmt::format("{:.3g} {}{}", rate, kPrefixes[prefix], unit);
}

std::string machine_text(const Profile& profile, const RenderOptions& look) {
  Table table({Align::left, Align::left});
  for (const Fact& fact : profile.taken_on) table.add({fact.name, printable(fact.value)});
  table.add({"precision", fmt::format("{}, sums in {}", name_of(profile.precision),
                                      name_of(profile.gradient_precision))});
  return table.text(look);
}

std::string devices_text(const Profile& profile, const RenderOptions& look) {
  if (!profile.cluster) return {};
  Table table({Align::left, Align::right, Align::right, Align::right, Align::right});
  table.add({"device", "fp32", "bf16", "memory", "copies"});
  for (const DeviceType& device : profile.cluster->device_types)
    table.add({printable(device.name), rate_text(device.peak_fp32.value(), "FLOP/s"),
               rate_text(device.peak_bf16.value(), "FLOP/s"), format_bytes(device.memory),
               rate_text(device.memory_bandwidth.value(), "B/s")});
  return paint("One rank's device, while all ranks work", Tone::strong, look) + "\n" +
         table.text(look);
}

std::string products_text(const Profile& profile, const RenderOptions& look) {
  if (profile.gemms.empty()) return {};
  std::vector<std::string> names;
  std::map<std::string, std::map<Precision, std::string>> rates;
  for (const GemmSample& gemm : profile.gemms) {
    const std::string name = fmt::format("{} x {} x {}", gemm.m, gemm.n, gemm.k);
    if (!rates.contains(name)) names.push_back(name);
    rates[name][gemm.precision] = rate_text(gemm.rate.value(), "FLOP/s");
  }
  Table table({Align::right, Align::right, Align::right});
  table.add({"m x n x k", "fp32", "bf16"});
  for (const std::string& name : names)
    table.add({name, rates[name][Precision::fp32], rates[name][Precision::bf16]});
  return paint("Matrix products", Tone::strong, look) + "\n" + table.text(look);
}

std::string groups_text(const Profile& profile, const RenderOptions& look) {
  constexpr Collective kOps[] = {Collective::all_gather, Collective::reduce_scatter,
                                 Collective::all_reduce, Collective::all_to_all,
                                 Collective::point_to_point};
  std::map<std::pair<int, int>, std::map<Collective, Points>> groups;
  for (const CollectiveSample& s : profile.collectives)
    groups[{s.ranks, s.stride}][s.op].emplace_back(static_cast<double>(s.bytes.value()),
                                                   s.seconds.value());
  if (groups.empty()) return {};
  Table table({Align::right, Align::right, Align::left, Align::right, Align::right, Align::right,
               Align::right, Align::right});
  std::vector<std::string> head = {"ranks", "apart", ""};
  for (const Collective op : kOps) head.push_back(name_of(op));
  table.add(std::move(head));
  for (auto& [shape, ops] : groups) {
    std::vector<std::string> latency = {std::to_string(shape.first), std::to_string(shape.second),
                                        "latency"};
    std::vector<std::string> bandwidth = {"", "", "bandwidth"};
    for (const Collective op : kOps) {
      const Points& points = ops[op];
      const Line line = points.size() < 2 ? Line{} : fit_relative_line(points);
      const bool fits = line.slope > 0;
      latency.push_back(fits ? format_seconds(Seconds(std::max(0.0, line.offset))) : "");
      bandwidth.push_back(fits ? rate_text(1 / line.slope, "B/s") : "");
    }
    table.add(std::move(latency));
    table.add(std::move(bandwidth));
  }
  return paint("Groups, all of a shape at once", Tone::strong, look) + "\n" + table.text(look);
}

std::string overlaps_text(const Profile& profile, const RenderOptions& look) {
  if (profile.overlaps.empty()) return {};
  Table table({Align::left, Align::right, Align::right, Align::left});
  table.add({"", "ranks", "compute takes", "communication takes"});
  for (const OverlapSample& s : profile.overlaps)
    table.add({name_of(s.op), std::to_string(s.ranks), fmt::format("{:.2f} times", s.compute),
               s.communication >= kNoProgress ? "no step forward"
                                              : fmt::format("{:.2f} times", s.communication)});
  return paint("While both run, against each alone", Tone::strong, look) + "\n" + table.text(look);
}

std::string meetings_text(const Profile& profile, const RenderOptions& look) {
  if (profile.meetings.empty()) return {};
  Table table({Align::right, Align::right, Align::right});
  table.add({"ranks", "compute for", "and wait"});
  for (const MeetingSample& s : profile.meetings)
    table.add({std::to_string(s.ranks), format_seconds(s.apart), format_percent(s.wait)});
  return paint("Where ranks meet again and again", Tone::strong, look) + "\n" + table.text(look);
}

}  // namespace

std::string hardware_text(const Profile& profile, const RenderOptions& look) {
  std::string text = machine_text(profile, look);
  for (const std::string& part :
       {devices_text(profile, look), products_text(profile, look), groups_text(profile, look),
        meetings_text(profile, look), overlaps_text(profile, look)})
    if (!part.empty()) text += "\n" + part;
  return text;
}

}  // namespace braid::cli
