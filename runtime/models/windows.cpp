#include "runtime/models/windows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "planner/model/image.h"
#include "runtime/ops/precision.h"
#include "runtime/ops/reorder.h"

namespace braid::models {

using parallel::CutBy;
using parallel::Init;
using parallel::Parameters;

namespace {

// Published models were trained with this in place of -inf.
constexpr double kHidden = -100;

// An image of `across` × `across` windows of `side` × `side` tokens, moved by `shift` around its
// edges.
struct Grid {
  std::int64_t across, side, shift;

  std::int64_t image() const { return across * side; }
  std::int64_t windows() const { return across * across; }
  std::int64_t tokens() const { return side * side; }

  // Row and column of the shifted image, of a token in a window.
  std::int64_t row(std::int64_t window, std::int64_t token) const {
    return window / across * side + token / side;
  }
  std::int64_t column(std::int64_t window, std::int64_t token) const {
    return window % across * side + token % side;
  }
  std::int64_t position(std::int64_t window, std::int64_t token) const {
    const auto moved = [&](std::int64_t at) { return (at + shift) % image(); };
    return moved(row(window, token)) * image() + moved(column(window, token));
  }
  // Whether two tokens of a window have come from either side of an edge.
  bool apart(std::int64_t window, std::int64_t one, std::int64_t other) const {
    const auto wrapped = [&](std::int64_t at) { return at + shift >= image(); };
    return wrapped(row(window, one)) != wrapped(row(window, other)) ||
           wrapped(column(window, one)) != wrapped(column(window, other));
  }
};

Grid grid_of(const LayerShape& s) {
  const std::int64_t side = whole_root(s.window);
  return {.across = whole_root(s.tokens) / side, .side = side, .shift = s.window_shift};
}

// Position by position: the first tokens of all windows, then the second ones, …
at::Tensor order_of(const Grid& grid) {
  at::Tensor order = at::empty({grid.tokens() * grid.windows()}, at::kLong);
  auto* next = order.data_ptr<std::int64_t>();
  for (std::int64_t token = 0; token < grid.tokens(); ++token)
    for (std::int64_t window = 0; window < grid.windows(); ++window)
      *next++ = grid.position(window, token);
  return order;
}

// A row for each offset, by rows of the window and then by columns, from the furthest before.
at::Tensor rows_of(const Grid& grid) {
  at::Tensor rows = at::empty({grid.tokens(), grid.tokens()}, at::kLong);
  auto* next = rows.data_ptr<std::int64_t>();
  const std::int64_t offsets = 2 * grid.side - 1;
  for (std::int64_t query = 0; query < grid.tokens(); ++query)
    for (std::int64_t key = 0; key < grid.tokens(); ++key)
      *next++ = (query / grid.side - key / grid.side + grid.side - 1) * offsets +
                (query % grid.side - key % grid.side + grid.side - 1);
  return rows;
}

at::Tensor hidden_of(const Grid& grid) {
  at::Tensor hidden = at::empty({grid.windows(), grid.tokens(), grid.tokens()}, at::kFloat);
  auto* next = hidden.data_ptr<float>();
  for (std::int64_t window = 0; window < grid.windows(); ++window)
    for (std::int64_t query = 0; query < grid.tokens(); ++query)
      for (std::int64_t key = 0; key < grid.tokens(); ++key)
        *next++ = grid.apart(window, query, key) ? static_cast<float>(kHidden) : 0.0F;
  return hidden;
}

}  // namespace

Windows::Windows(const parallel::Site& site, Parameters::Declare& declare)
    : window_(site.shape.window) {
  const LayerShape& s = site.shape;
  // Ulysses has cut the heads when it comes to scores, and not the table.
  heads_ = s.heads / site.strategy.tp;
  if (site.ulysses()) first_head_ = site.tensor_rank * heads_;
  table_ = declare.add({.name = "attention.relative_bias",
                        .shape = {s.position_bias, s.heads},
                        .cut = CutBy::tensor,
                        .cut_dim = 1,
                        .init = Init::zeros,
                        .decays = false});
  const Grid grid = grid_of(s);
  const at::Tensor order = order_of(grid);
  order_ = order.to(site.numerics.device);
  place_ = order.argsort().to(site.numerics.device);
  rows_ = rows_of(grid).to(site.numerics.device);
  if (grid.shift > 0) hidden_ = hidden_of(grid).to(site.numerics.device);
}

at::Tensor Windows::apart(const at::Tensor& x) const {
  return ops::reordered(x, order_).view({window_, -1, x.size(2), x.size(3)});
}

at::Tensor Windows::together(const at::Tensor& x) const {
  return ops::reordered(x.reshape({place_.size(0), -1, x.size(2), x.size(3)}), place_);
}

ops::Visibility Windows::visibility(const Parameters& parameters) const {
  return {.causal = false,
          .by_distance = parameters.weight(table_).narrow(1, first_head_, heads_),
          .pair_rows = rows_,
          .by_group = hidden_};
}

ops::Attended Windows::attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              double scale, const Parameters& parameters) const {
  return ops::attention(q, k, v, scale, visibility(parameters));
}

ops::AttentionGradients Windows::backward(const at::Tensor& dout, const at::Tensor& q,
                                          const at::Tensor& k, const at::Tensor& v,
                                          const ops::Attended& attended, double scale,
                                          Parameters& parameters,
                                          parallel::WeightWork& work) const {
  ops::Visibility see = visibility(parameters);
  see.distance_gradient =
      at::zeros(see.by_distance.sizes(),
                see.by_distance.options().dtype(ops::wide(see.by_distance.scalar_type())));
  ops::AttentionGradients gradients =
      ops::attention_backward(dout, q, k, v, attended.out, attended.lse, scale, see);
  work.later([this, &parameters, gradient = see.distance_gradient] {
    parameters.gradient(table_).narrow(1, first_head_, heads_).add_(gradient);
  });
  return gradients;
}

}  // namespace braid::models
