#include "planner/simulate/layer_tensors.h"

#include <algorithm>
#include <cmath>

#include "planner/cost/assumptions.h"
#include "planner/cost/pipeline.h"

namespace braid {
namespace {

std::int64_t per_rank(std::int64_t whole, std::int64_t ranks) {
  return (whole + ranks - 1) / ranks;
}

Bytes sum(const std::vector<Bytes>& list) {
  Bytes all;
  for (const Bytes size : list) all += size;
  return all;
}

class Cutter {
 public:
  Cutter(const Plan& plan, int layer, const Strategy& s)
      : plan_(plan),
        shape_(plan.model.type_of(layer).shape),
        s_(s),
        rows_are_samples_(rows_share_samples(s, plan.micro_batch())),
        split_{.context = s.cp,
               .tensor = s.outer(),
               .matrices = s.tp_kind != TensorKind::ulysses,
               .square = s.square,
               .rows = rows_are_samples_ ? 1 : s.square},
        samples_(static_cast<double>(plan.micro_batch()) / s.dp),
        kept_samples_(rows_are_samples_ ? samples_ / s.square : samples_),
        bytes_(bytes_of(plan.precision)),
        gradient_(bytes_of(plan.gradient_precision)) {}

  LayerTensors cut() {
    LayerTensors t;
    add_states(t);
    t.replicas = s_.replicas();
    t.gradients_stay = gradients_stay(s_);
    t.saved = saved(s_.recompute);
    t.deferred = scaled(deferred_bytes(shape_, plan_.precision, split_), kept_samples_);
    if (const int waits = deferred_gathers(shape_, split_); waits > 0) {
      const Bytes one = scaled(Bytes(shape_.tokens * shape_.hidden * bytes_),
                               samples_ / s_.cp / (s_.square * s_.square));
      t.waits.assign(static_cast<std::size_t>(waits), one);
      t.deferred -= waits * one;
      t.tensor = s_.outer();
    }
    t.gradients_in_forward = shape_.kind == LayerKind::head;
    add_work(t);
    const double share = samples_ / (static_cast<double>(s_.tp) * s_.cp);
    if (shape_.kind != LayerKind::embedding)
      t.input = scaled(Bytes(shape_.tokens * shape_.hidden * bytes_), share);
    t.output = scaled(boundary_bytes(shape_, plan_.precision), share);
    return t;
  }

 private:
  // A layer's parameters are a buffer, its experts' another; ZeRO gives each replica a share.
  void add_states(LayerTensors& t) {
    const std::int64_t all =
        parameters_per_rank(shape_, s_.tensor_split(), s_.ep, s_.hidden_split());
    const std::int64_t experts = expert_parameters_per_rank(shape_, s_.tensor_split(), s_.ep);
    const auto add = [&](std::int64_t whole, std::int64_t replicas) {
      if (whole == 0) return;
      const bool shards = s_.zero != Zero::none;
      const std::int64_t share = shards ? per_rank(whole, replicas) : whole;
      const std::int64_t padded = shards ? share * replicas : whole;
      const bool shards_gradients = s_.zero == Zero::gradients || s_.zero == Zero::parameters;
      t.states.emplace_back(bytes_ * (s_.zero == Zero::parameters ? share : padded));
      t.gradients.emplace_back(gradient_ * (shards_gradients ? share : padded));
      if (plan_.precision != Precision::fp32) t.states.emplace_back(kMasterBytes * share);
      t.states.insert(t.states.end(), 2, Bytes(kMomentBytes / 2 * share));
      if (s_.zero == Zero::parameters && replicas > 1) t.gathered += Bytes(bytes_ * padded);
      if (shards_gradients && replicas > 1) {
        t.whole_gradient += Bytes(gradient_ * padded);
        t.share += Bytes(gradient_ * share);
      }
    };
    add(all - experts, s_.replicas());
    add(experts, std::max(1, s_.replicas() / s_.ep));
    // Copies of the embedding's: of its rows, and of the relative positions that a stack shares.
    std::int64_t copied = shape_.bias_buckets * shape_.heads;
    if (shape_.tied && plan_.mesh().devices > 1)
      copied += per_rank(shape_.vocab, s_.tensor_split()) * shape_.hidden;
    if (copied > 0) {
      t.states.emplace_back(bytes_ * copied);
      t.gradients.emplace_back(gradient_ * copied);
    }
  }

  bool keeps_normed() const { return shape_.post_norm || split_.square > 1; }

  // What the operators of a block keep, in the order in which they run. Whatever has no operator of
  // its own here (routers, cross-attention) comes last, as one.
  std::vector<Bytes> saved(Recompute recompute) const {
    const Bytes whole =
        scaled(saved_bytes(shape_, recompute, plan_.precision, split_), kept_samples_);
    std::vector<Bytes> list;
    const auto add = [&](std::int64_t tokens, std::int64_t bytes) {
      if (tokens * bytes > 0) list.push_back(scaled(Bytes(tokens * bytes), kept_samples_));
    };
    const std::int64_t wide = per_rank(shape_.tokens, split_.context);
    const std::int64_t narrow = per_rank(shape_.tokens, split_.context * split_.tensor);
    const std::int64_t inner = split_.matrices ? wide : narrow;
    const std::int64_t hidden = shape_.hidden * bytes_;
    const std::int64_t statistics = shape_.norm == NormKind::rms_norm ? 4 : 8;
    if (shape_.kind == LayerKind::block) {
      add(narrow, hidden);
      if (recompute != Recompute::full && shape_.attention != AttentionKind::none) {
        const std::int64_t heads = per_rank(shape_.heads, split_.tensor);
        const std::int64_t kv = per_rank(shape_.kv_heads, split_.tensor);
        if (keeps_normed()) add(narrow, hidden);
        add(narrow, statistics);
        add(wide, (heads + 2 * kv) * shape_.head_dim * bytes_);
        if (recompute == Recompute::none) {
          add(wide, heads * shape_.head_dim * bytes_);
          add(wide, heads * 4);
        }
      }
      if (recompute != Recompute::full && shape_.ffn > 0 && shape_.experts == 0) {
        const std::int64_t ways = split_.matrices ? split_.tensor : 1;
        const std::int64_t columns = per_rank(shape_.ffn, ways) + per_rank(shape_.shared_ffn, ways);
        if (shape_.attention != AttentionKind::none) add(narrow, hidden);  // the residual
        if (keeps_normed()) add(narrow, hidden);
        add(narrow, statistics);
        add(inner, (is_gated(shape_.activation) ? 2 : 1) * columns * bytes_);
      }
    }
    // Samples may be fractions, and each tensor then rounds up.
    while (!list.empty() && sum(list) > whole) list.pop_back();
    if (sum(list) < whole) list.push_back(whole - sum(list));
    return list;
  }

  void add_work(LayerTensors& t) const {
    const double split = static_cast<double>(s_.tp) * s_.cp;
    const Bytes transient =
        scaled(transient_bytes(shape_, s_.recompute, plan_.precision), samples_ / split);
    if (s_.tensor_split() > 1) {  // input and output gathered over the tensor group
      const Bytes gathered =
          scaled(Bytes(shape_.tokens * shape_.hidden * bytes_), samples_ / s_.cp);
      t.forward_work.insert(t.forward_work.end(), 2, gathered);
      // A block has its input ahead of the weight gradients that it is for.
      const bool early = shape_.kind == LayerKind::block && s_.tp_kind == TensorKind::megatron &&
                         weights_waiting(plan_.shape, 0) == 0;
      t.backward_work.insert(t.backward_work.end(), early ? 3 : 2, gathered);
      t.weight_work.push_back(gathered);
    }
    if (shape_.kind == LayerKind::head) {  // its forward goes on to the gradient of its input
      if (transient > Bytes()) t.forward_work.push_back(transient);
    } else {
      add_gradients(t, transient);
    }
    if (plan_.precision != plan_.gradient_precision) {
      // Of one matrix, ahead of being added.
      const Bytes matrix(gradient_ * largest_matrix_per_rank(shape_, s_.tensor_split()));
      (t.gradients_in_forward ? t.forward_work : t.backward_work).push_back(matrix);
      t.weight_work.push_back(matrix);
    }
  }

  // What is brought back, tensor by tensor, then gradients: of the widest activation, of what it
  // was made of, and of input and output.
  void add_gradients(LayerTensors& t, Bytes transient) const {
    const std::vector<Bytes> kept = t.saved;
    std::vector<Bytes> back =
        s_.recompute == Recompute::none ? std::vector<Bytes>{} : saved(Recompute::none);
    for (const Bytes size : kept)
      if (const auto found = std::ranges::find(back, size); found != back.end()) back.erase(found);
    if (sum(back) > transient) back = {};
    const Bytes left = transient - sum(back);
    t.backward_work.insert(t.backward_work.end(), back.begin(), back.end());
    if (left == Bytes()) return;
    const double pre = is_gated(shape_.activation) ? 2 : 1;
    const auto ffn = static_cast<double>(std::max<std::int64_t>(shape_.ffn, shape_.hidden));
    const auto hidden = static_cast<double>(shape_.hidden);
    const double all = (pre + 1) * ffn + 2 * hidden;
    Bytes rest = left;
    for (const double width : {ffn, pre * ffn, hidden}) {
      const Bytes part(
          static_cast<std::int64_t>(std::floor(static_cast<double>(left.value()) * width / all)));
      if (part > Bytes()) t.backward_work.push_back(part);
      rest -= part;
    }
    if (rest > Bytes()) t.backward_work.push_back(rest);
  }

  const Plan& plan_;
  const LayerShape& shape_;
  Strategy s_;
  bool rows_are_samples_;  // of a square
  Split split_;
  double samples_;       // of a replica
  double kept_samples_;  // of which a device keeps tensors
  std::int64_t bytes_, gradient_;
};

}  // namespace

LayerTensors layer_tensors(const Plan& plan, int layer, const Strategy& strategy) {
  return Cutter(plan, layer, strategy).cut();
}

}  // namespace braid
