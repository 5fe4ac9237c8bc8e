#include "planner/strategy/strategy.h"

#include <fmt/core.h>

namespace braid {

std::string name_of(TensorKind kind) {
  switch (kind) {
    case TensorKind::megatron:
      return "megatron";
    case TensorKind::ulysses:
      return "ulysses";
    case TensorKind::spatial_temporal:
      return "spatial_temporal";
  }
  return {};
}

std::string name_of(SquareVariant variant) {
  switch (variant) {
    case SquareVariant::plus_minus:
      return "plus_minus";
    case SquareVariant::paper:
      return "paper";
  }
  return {};
}

std::string name_of(Zero zero) {
  switch (zero) {
    case Zero::none:
      return "none";
    case Zero::optimizer:
      return "optimizer";
    case Zero::gradients:
      return "gradients";
    case Zero::parameters:
      return "parameters";
  }
  return {};
}

std::string to_string(const Strategy& s) {
  std::string text;
  const auto add = [&](std::string_view name, int degree) {
    if (degree == 1) return;
    if (!text.empty()) text += ' ';
    text += fmt::format("{}{}", name, degree);
  };
  add(s.tp_kind == TensorKind::ulysses ? "ulysses" : "tp", s.outer());
  if (s.tp_kind == TensorKind::spatial_temporal)
    text += fmt::format("{}st{}x{}{}", text.empty() ? "" : " ", s.square, s.square,
                        s.variant == SquareVariant::paper ? ".paper" : "");
  add("cp", s.cp);
  add("dp", s.dp);
  add("ep", s.ep);
  if (text.empty()) text = "single";
  if (s.zero != Zero::none) text += fmt::format(" zero{}", static_cast<int>(s.zero));
  if (s.recompute != Recompute::none) text += fmt::format(" recompute-{}", name_of(s.recompute));
  return text;
}

}  // namespace braid
