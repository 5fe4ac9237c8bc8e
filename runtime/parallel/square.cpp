#include "runtime/parallel/square.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>

#include <array>

#include "runtime/ops/linear.h"
#include "runtime/parallel/collectives.h"
#include "runtime/parallel/recorder.h"

namespace braid::parallel {

namespace {

// Where the sender of a block stands, seen from its receiver.
struct Hop {
  int rows = 0, columns = 0;
};
constexpr Hop kLeft{0, 1}, kUp{1, 0}, kDownLeft{-1, 1}, kUpRight{1, -1};

// The two factors of a phase: an activation, and the matrix or the other activation.
struct Factors {
  at::Tensor first, second;
};
struct Hops {
  Hop first, second;
};
struct Phases {
  Hops forward, input_gradient, weight_gradient;
};
constexpr Phases kInward{{kLeft, kUp}, {kLeft, kDownLeft}, {kUpRight, kUp}};
constexpr Phases kOutward{{kLeft, kDownLeft}, {kLeft, kUp}, {kUp, kUpRight}};

const Phases& phases_of(Direction direction, const Site& site) {
  return direction == Direction::inward || site.as_published() ? kInward : kOutward;
}

int rank_at(int row, int column, int side) {
  return (row + side) % side * side + (column + side) % side;
}

// Blocks on their way. Keeps what is read and written alive.
class Walking {
 public:
  Walking() = default;
  Walking(const Factors& from, const Hops& hops, const Site& site, std::string_view name)
      : from_(from), to_{at::empty_like(from.first), at::empty_like(from.second)} {
    const std::array out = {outgoing(from.first, hops.first, site),
                            outgoing(from.second, hops.second, site)};
    const std::array in = {incoming(to_.first, hops.first, site),
                           incoming(to_.second, hops.second, site)};
    handle_ = communicate({.kind = CommKind::tensor, .operation = name},
                          [&] { return site.square->exchange(out, in, name); });
  }
  Factors wait() {
    handle_.wait();
    from_ = {};
    return std::exchange(to_, {});
  }

  static comm::Outgoing outgoing(const at::Tensor& x, Hop hop, const Site& site) {
    return {buffer_of(x),
            rank_at(site.row - hop.rows, site.column - hop.columns, site.strategy.square)};
  }
  static comm::Incoming incoming(const at::Tensor& x, Hop hop, const Site& site) {
    return {buffer_of(x),
            rank_at(site.row + hop.rows, site.column + hop.columns, site.strategy.square)};
  }

 private:
  comm::Handle handle_;
  Factors from_, to_;
};

// One block alone, with nothing to do beside it.
at::Tensor walk(const at::Tensor& x, Hop hop, const Site& site, std::string_view name) {
  const int side = site.strategy.square;
  if (hop.rows % side == 0 && hop.columns % side == 0) return x;
  at::Tensor arriving = at::empty_like(x);
  const std::array out = {Walking::outgoing(x, hop, site)};
  const std::array in = {Walking::incoming(arriving, hop, site)};
  communicate({.kind = CommKind::tensor, .operation = name}, [&] {
    return site.square->exchange(out, in, name);
  }).wait();
  return arriving;
}

// Gives `multiply` the factors of every step, and whether it is the last one; those of the next are
// under way meanwhile. Returns the last ones.
template <class Multiply>
Factors in_steps(Factors factors, const Hops& hops, const Site& site, std::string_view name,
                 Multiply multiply) {
  for (int step = 1; step < site.strategy.square; ++step) {
    Walking next(factors, hops, site, name);
    multiply(factors, false);
    factors = next.wait();
  }
  multiply(factors, true);
  return factors;
}

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}).contiguous(); }

at::Tensor shaped(const at::Tensor& rows, const at::Tensor& like) {
  return rows.view({like.size(0), like.size(1), rows.size(1)});
}

// The sum of all steps' products, rounded once with the last one.
class StepSum {
 public:
  explicit StepSum(at::Tensor bias = {}) : bias_(std::move(bias)) {}
  void add(const at::Tensor& left, const at::Tensor& right, bool last) {
    if (!last) {
      const bool first = !sum_.defined();
      ops::add_product(sum_, left, right);
      if (first && bias_.defined()) sum_.add_(bias_);
    } else {
      result_ = ops::last_product(sum_, left, right);
    }
  }
  const at::Tensor& result() const { return result_; }

 private:
  at::Tensor bias_, sum_, result_;
};

// The published form. Every product is inward there, with x at [r, r+c], y at [r, c], the input's
// gradient at [r, r+c-1]. It leaves x at [r, r+c-1] and dy at [r, c-1], where the weight gradient
// begins. Around an outward product activations change place within their row. Its matrix would
// stay where a phase has left it; here it stays at home, as F may follow F, and is brought to
// [r+c-1, c] ahead of the input gradient: as many blocks as the published form sends.
struct Published {
  // What a rank of row r takes from its row: columns further on.
  static int to_x(int row) { return row; }             // [r, c] → [r, r+c]
  static int from_dx(int row) { return 1 - row; }      // [r, r+c-1] → [r, c]
  static int to_dy(int row) { return -row; }           // [r, r+c] → [r, c]
  static int to_walked_x(int row) { return row - 1; }  // [r, c] → [r, r+c-1]
};

at::Tensor within_row(const at::Tensor& x, int columns, const Site& site) {
  return walk(x.contiguous(), {0, columns}, site, "square redistribute");
}

void published_weight_gradient(const ops::Sum& gradient, const at::Tensor& dy, const at::Tensor& x,
                               const Site& site) {
  const int side = site.strategy.square;
  Factors factors{rows_of(x), rows_of(dy)};
  at::Tensor sum;
  for (int step = 0; step + 1 < side; ++step) {
    const bool last = step + 2 == side;
    Walking next(factors, last ? Hops{kUp, {1, 1}} : Hops{kUpRight, kUp}, site, "square gradient");
    ops::add_product(sum, factors.second.t(), factors.first);
    factors = next.wait();
  }
  // The sum so far belongs to the left neighbour, the last product to this rank.
  at::Tensor arriving = at::empty_like(sum);
  const std::array out = {Walking::outgoing(sum, kLeft, site)};
  const std::array in = {Walking::incoming(arriving, kLeft, site)};
  comm::Handle handle =
      communicate({.kind = CommKind::tensor, .operation = "square gradient"},
                  [&] { return site.square->exchange(out, in, "square gradient"); });
  ops::add_weight_gradient(gradient, factors.second, factors.first);
  handle.wait();
  if (!gradient.value.is_meta()) gradient.value.add_(arriving);
}

}  // namespace

namespace {

// Under megatron an outward product is a summand of its rank, and so is the gradient of what went
// into an inward one: the tensor group scatters their sum. A chunk's rows may lie apart, their
// products do not.
at::Tensor room_for_summand(const at::Tensor& rows, std::int64_t width, const Site& site) {
  const std::int64_t samples = rows.size(-2);
  const std::int64_t tokens = rows.numel() / samples / rows.size(-1);
  return empty_for(*site.outer, {tokens, samples, width}, rows.options());
}

}  // namespace

Product linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
               Direction direction, const Site& site) {
  if (site.megatron() && direction == Direction::outward) {
    const at::Tensor y = room_for_summand(x, weight.size(0), site);
    ops::linear_into(y, x, weight, bias);
    return {y, x};
  }
  if (!site.in_square()) return {ops::linear(x, weight, bias), x};
  const bool moves = site.as_published() && direction == Direction::outward;
  const at::Tensor in = moves ? within_row(x, Published::to_x(site.row), site) : x;
  StepSum sum(bias);
  const Factors last =
      in_steps({rows_of(in), weight}, phases_of(direction, site).forward, site, "square forward",
               [&](const Factors& f, bool is_last) { sum.add(f.first, f.second.t(), is_last); });
  at::Tensor y = shaped(sum.result(), x);
  if (moves) y = within_row(y, Published::to_x(site.row), site);
  if (!site.as_published() || moves) return {y, x};
  return {y, shaped(last.first, x)};
}

Product linear_input_gradient(const at::Tensor& dy, const at::Tensor& weight, Direction direction,
                              const Site& site) {
  if (site.megatron() && direction == Direction::inward) {
    const at::Tensor dx = room_for_summand(dy, weight.size(1), site);
    ops::linear_input_gradient_into(dx, dy, weight);
    return {dx, dy};
  }
  if (!site.in_square()) return {ops::linear_input_gradient(dy, weight), dy};
  const bool outward = direction == Direction::outward;
  at::Tensor in = dy, matrix = weight;
  if (site.as_published()) {
    if (outward) in = within_row(dy, Published::to_dy(site.row), site);
    matrix = walk(weight, {-1, 0}, site, "square align");
  }
  StepSum sum;
  const Factors last = in_steps(
      {rows_of(in), matrix}, phases_of(direction, site).input_gradient, site, "square backward",
      [&](const Factors& f, bool is_last) { sum.add(f.first, f.second, is_last); });
  const at::Tensor dx = shaped(sum.result(), dy);
  if (!site.as_published()) return {dx, dy};
  return {within_row(dx, outward ? Published::from_dx(site.row) : 1, site), shaped(last.first, dy)};
}

void add_weight_gradient(const ops::Sum& gradient, const at::Tensor& dy, const at::Tensor& x,
                         Direction direction, const Site& site) {
  if (!site.in_square()) {
    ops::add_weight_gradient(gradient, dy, x);
  } else if (site.as_published()) {
    const bool moves = direction == Direction::outward;
    const at::Tensor from = moves ? within_row(x, Published::to_walked_x(site.row), site) : x;
    published_weight_gradient(gradient, dy, from, site);
  } else {
    in_steps({rows_of(x), rows_of(dy)}, phases_of(direction, site).weight_gradient, site,
             "square gradient", [&, fresh = gradient.fresh](const Factors& f, bool) mutable {
               ops::add_weight_gradient({gradient.value, std::exchange(fresh, false)}, f.second,
                                        f.first);
             });
  }
}

namespace {

// Where a row's runs of tokens lie among those of all rows: in the gathered order, row by row, and
// in the order of positions.
struct Run {
  std::int64_t gathered = 0, length = 0;
  Segment tokens;
};

std::vector<Run> gathered_runs(const Site& site) {
  std::vector<Run> runs;
  std::int64_t position = 0;
  for (const std::vector<Segment>& row : site.row_tokens)
    for (const Segment& s : row) {
      runs.push_back({position, s.size(), s});
      position += s.size();
    }
  return runs;
}

}  // namespace

KeysAndValues gather_rows(const KeysAndValues& own, const Site& site) {
  if (!site.rows_share_tokens) return own;
  const at::Tensor all =
      all_gather(at::stack({own.k, own.v}, 1), *site.same_column, "gather keys", CommKind::tensor);
  std::vector<Run> runs = gathered_runs(site);
  std::ranges::sort(runs, {}, &Run::tokens);
  std::vector<at::Tensor> k, v;
  for (const Run& run : runs) {
    const at::Tensor both = all.narrow(0, run.gathered, run.length);
    k.push_back(both.select(1, 0));
    v.push_back(both.select(1, 1));
  }
  return {at::cat(k, 0), at::cat(v, 0)};
}

KeysAndValues scatter_rows(const KeysAndValues& gradients, const Site& site) {
  if (!site.rows_share_tokens) return gradients;
  const at::Tensor both = at::stack({gradients.k, gradients.v}, 1);
  std::vector<Run> runs = gathered_runs(site);
  std::ranges::sort(runs, {}, &Run::tokens);
  at::Tensor by_row = at::empty_like(both);
  std::int64_t position = 0;
  for (const Run& run : runs) {
    by_row.narrow(0, run.gathered, run.length).copy_(both.narrow(0, position, run.length));
    position += run.length;
  }
  const at::Tensor own =
      reduce_scatter(by_row, *site.same_column, "scatter keys", CommKind::tensor);
  return {own.select(1, 0).contiguous(), own.select(1, 1).contiguous()};
}

}  // namespace braid::parallel
