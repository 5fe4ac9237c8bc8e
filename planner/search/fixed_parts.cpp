#include "planner/search/fixed_parts.h"

#include <fmt/core.h>

namespace braid {

namespace {

template <class Part, class Value>
bool keeps(const std::optional<Part>& part, const Value& value) {
  return !part || *part == value;
}

bool forms_squares(const LayerShape& layer) { return layer.kind == LayerKind::block; }
bool recomputes(const LayerShape& layer) {
  return layer.kind != LayerKind::embedding && layer.kind != LayerKind::head;
}

TensorKind kind_of(TensorKind fixed, const LayerShape& layer) {
  const bool square = fixed == TensorKind::spatial_temporal;
  return square && !forms_squares(layer) ? TensorKind::megatron : fixed;
}

}  // namespace

std::string FixedParts::to_string() const {
  std::string text;
  const auto add = [&](const char* flag, const auto& part, const auto& write) {
    if (part) text += fmt::format("{}--{} {}", text.empty() ? "" : " ", flag, write(*part));
  };
  const auto number = [](auto value) {
    return fmt::format("{}", static_cast<std::int64_t>(value));
  };
  const auto name = [](auto value) { return name_of(value); };
  add("tp", tp, number);
  add("tp-kind", tp_kind, name);
  add("pp", stages, number);
  add("cp", cp, number);
  add("dp", dp, number);
  add("ep", ep, number);
  add("zero", zero, number);
  add("recompute", recompute, name);
  add("chunks", chunks, number);
  add("micro-batch", replica_samples, number);
  add("micro-batches", micro_batches, number);
  return text;
}

bool FixedParts::allows(const LayerShape& layer, const Strategy& s) const {
  return keeps(tp, s.tp) && keeps(cp, s.cp) && keeps(dp, s.dp) && keeps(zero, s.zero) &&
         (!ep || s.ep == (layer.experts > 0 ? *ep : 1)) &&
         (!tp_kind || s.tp == 1 || s.tp_kind == kind_of(*tp_kind, layer)) &&
         (!recompute || s.recompute == (recomputes(layer) ? *recompute : Recompute::none));
}

bool FixedParts::allows(const LayerShape& layer, const Strategy& s,
                        std::int64_t micro_batch) const {
  return allows(layer, s) && (!replica_samples || *replica_samples * s.dp == micro_batch);
}

bool FixedParts::allows(const PipelineShape& shape, std::int64_t micro_batch,
                        int stage_devices) const {
  if (!keeps(stages, shape.stages) || !keeps(chunks, shape.chunks) ||
      !keeps(micro_batches, shape.micro_batches))
    return false;
  if (!replica_samples) return true;
  if (micro_batch % *replica_samples != 0) return false;
  const std::int64_t replicas = micro_batch / *replica_samples;
  return stage_devices % replicas == 0 && keeps(dp, replicas);
}

}  // namespace braid
