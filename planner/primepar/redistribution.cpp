#include "planner/primepar/redistribution.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "planner/core/error.h"

namespace braid {

namespace {

constexpr std::array kInputAxes = {Dim::batch, Dim::rows, Dim::inner};
constexpr std::array kOutputAxes = {Dim::batch, Dim::rows, Dim::columns};
constexpr std::array kQueryAxes = {Dim::batch, Dim::rows, Dim::heads};
constexpr std::array kKeyAxes = {Dim::batch, Dim::keys, Dim::heads};
constexpr std::array kScoreAxes = {Dim::batch, Dim::rows, Dim::heads, Dim::keys};
constexpr int kHeadAxis = 2;

PortLayouts linear_layouts(Port port, const Partition& p) {
  const Primitive* square = p.square();
  const int last = square == nullptr ? 0 : square->q - 1;
  if (port == Port::input)
    return {layout_of(p, kInputAxes, Phase::forward, 0),
            layout_of(p, kInputAxes, Phase::backward, last)};
  return {layout_of(p, kOutputAxes, Phase::forward, last),
          layout_of(p, kOutputAxes, Phase::backward, 0)};
}

Layout still(const Partition& p, std::span<const Dim> axes) {
  return layout_of(p, axes, Phase::forward, 0);
}

Layout attention_layout(Port port, const Partition& p, const PrimeparTask& task) {
  switch (port) {
    case Port::query:
    case Port::output:
      return still(p, kQueryAxes);
    case Port::key:
    case Port::value:
      return coarsened(still(p, kKeyAxes), kHeadAxis,
                       std::countr_zero(static_cast<std::uint64_t>(task.block.kv_heads)));
    case Port::score:
      return still(p, kScoreAxes);
    case Port::input:
      break;
  }
  internal_failure("attention has no such tensor", std::source_location::current());
}

double seconds(const Movement& movement, const PrimeparMachine& machine) {
  return movement.near * machine.near_byte() + movement.far * machine.far_byte();
}

}  // namespace

PortLayouts port_layouts(const Operator& op, Port port, const Partition& partition,
                         const PrimeparTask& task) {
  switch (letters_of(op.kind)) {
    case Letters::linear:
      return linear_layouts(port, partition);
    case Letters::elementwise: {
      const Layout layout = still(partition, kOutputAxes);
      return {layout, layout};
    }
    case Letters::attention: {
      const Layout layout = attention_layout(port, partition, task);
      return {layout, layout};
    }
  }
  return {};
}

double seconds_a_byte(const PortLayouts& from, const PortLayouts& to,
                      const PrimeparMachine& machine) {
  const int width = machine.node_width();
  return seconds(MovementSource(from.forward, width).to(to.forward), machine) +
         seconds(MovementSource(to.backward, width).to(from.backward), machine);
}

int Redistribution::layout_id(Layout layout) {
  const auto [found, fresh] =
      ids_.try_emplace(std::move(layout), static_cast<int>(layouts_.size()));
  if (fresh) {
    layouts_.push_back(found->first);
    sources_.emplace_back(found->first, machine_.node_width());
  }
  return found->second;
}

PortStates Redistribution::states_of(const Operator& op, Port port,
                                     std::span<const Partition> states, const PrimeparTask& task) {
  std::vector<int> ids;
  ids.reserve(states.size());
  for (const Partition& state : states) {
    PortLayouts layouts = port_layouts(op, port, state, task);
    const int forward = layout_id(std::move(layouts.forward));
    const int backward = layout_id(std::move(layouts.backward));
    const auto [found, fresh] =
        kind_ids_.try_emplace({forward, backward}, static_cast<int>(kinds_.size()));
    if (fresh) kinds_.emplace_back(forward, backward);
    ids.push_back(found->second);
  }
  PortStates result;
  result.kinds = ids;
  std::ranges::sort(result.kinds);
  const auto repeated = std::ranges::unique(result.kinds);
  result.kinds.erase(repeated.begin(), repeated.end());
  result.of_state.reserve(ids.size());
  for (const int id : ids)
    result.of_state.push_back(static_cast<std::uint32_t>(
        std::ranges::lower_bound(result.kinds, id) - result.kinds.begin()));
  return result;
}

double Redistribution::one_way(int from, int to) const {
  return seconds(
      sources_[static_cast<std::size_t>(from)].to(layouts_[static_cast<std::size_t>(to)]),
      machine_);
}

float Redistribution::there_and_back(int a, int b) {
  const auto low = static_cast<std::size_t>(std::min(a, b));
  const auto high = static_cast<std::size_t>(std::max(a, b));
  if (round_trips_.size() <= high) round_trips_.resize(layouts_.size());
  std::vector<float>& row = round_trips_[high];
  if (row.empty()) row.resize(high + 1, std::numeric_limits<float>::quiet_NaN());
  float& trip = row[low];
  if (std::isnan(trip)) trip = static_cast<float>(one_way(a, b) + one_way(b, a));
  return trip;
}

const CostTable<float>& Redistribution::table(const PortStates& from, const PortStates& to) {
  auto& slot = tables_[{from.kinds, to.kinds}];
  if (slot) return *slot;
  slot = std::make_unique<CostTable<float>>(from.kinds.size(), to.kinds.size());
  // A tile of producers stays in the cache while all consumers pass.
  constexpr std::size_t kTile = 32;
  for (std::size_t begin = 0; begin < from.kinds.size(); begin += kTile) {
    const std::size_t end = std::min(begin + kTile, from.kinds.size());
    for (std::size_t j = 0; j < to.kinds.size(); ++j) {
      const auto [in, gradient_in] = kinds_[static_cast<std::size_t>(to.kinds[j])];
      for (std::size_t i = begin; i < end; ++i) {
        const auto [out, gradient_out] = kinds_[static_cast<std::size_t>(from.kinds[i])];
        const bool alike = in == gradient_in && out == gradient_out;
        (*slot)(i, j) =
            alike ? there_and_back(out, in)
                  : static_cast<float>(one_way(out, in) + one_way(gradient_in, gradient_out));
      }
    }
  }
  return *slot;
}

}  // namespace braid
