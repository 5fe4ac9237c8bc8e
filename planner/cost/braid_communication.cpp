// The communication that a layer's strategy brings, operation by operation as the runtime does it,
// and what overlap leaves exposed.

#include <algorithm>
#include <bit>
#include <numbers>

#include "planner/cost/braid_work.h"

namespace braid {

namespace {

// Collectives that run beside one stretch of compute, one after the other: those first that make
// the most of it. One that makes no progress beside compute keeps nobody from the others' pace.
class Beside {
 public:
  void add(double seconds, Overlap overlap) {
    const auto before = [](const Operation& a, const Operation& b) {
      return a.overlap.communication < b.overlap.communication;
    };
    const Operation operation{seconds, overlap};
    operations_.insert(std::ranges::upper_bound(operations_, operation, before), operation);
  }
  double seconds() const {
    double sum = 0;
    for (const Operation& operation : operations_) sum += operation.seconds;
    return sum;
  }
  double exposed(double compute) const {
    double left = compute, exposed = 0;
    for (const auto& [seconds, overlap] : operations_) {
      exposed += overlap.exposed(left, seconds);
      left = std::max(0.0, left - overlap.communication * seconds / overlap.compute);
    }
    return exposed;
  }

 private:
  struct Operation {
    double seconds = 0;
    Overlap overlap;
  };
  std::vector<Operation> operations_;
};

}  // namespace

// A group larger than all that were measured waits as the largest of them.
const BraidModel::Waits& BraidModel::waits_of(int ranks) const {
  const auto measured = meetings_.lower_bound(ranks);
  return measured == meetings_.end() ? meetings_.rbegin()->second : measured->second;
}

// Seconds that a rank waits for the slowest of its group while it computes, where they meet so many
// times on the way.
double BraidModel::waiting(int ranks, double compute, double meetings) const {
  if (profile_ == nullptr || ranks <= 1) return 0;
  if (!meetings_.empty()) return meetings * waits_of(ranks).seconds(compute / meetings);
  if (!profile_->noise) return 0;
  // The expected maximum of as many normal deviations, of the size that repetitions of a
  // measurement had.
  constexpr double kMost = 0.3;  // beyond, it is no jitter that one could plan with
  constexpr double kMaxima[] = {0,    std::numbers::inv_sqrtpi, 1.029, 1.424, 1.766, 2.070,
                                2.344};  // of 1, 2, 4, …
  const auto power = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(ranks)) - 1);
  const double deviation = std::min(kMost, profile_->noise->deviation());
  return compute * deviation * kMaxima[std::min(power, std::size(kMaxima) - 1)];
}

// Ranks that have gradients in common meet when these are summed up, at the end of a step at the
// latest, and the slowest of the stage comes last. Those of one tensor group have waited for each
// other before.
double BraidModel::waiting_at_the_end(const Work& w) const {
  const Strategy& s = w.strategy;
  if (meetings_.empty() || s.replicas() <= 1) return 0;
  const auto share = [&](int ranks) { return ranks <= 1 ? 0.0 : waits_of(ranks).rare; };
  const double pass = w.compute.forward + w.compute.all_backward();
  return std::max(0.0, share(w.site.mesh.stage_devices()) - share(s.tp)) * pass *
         w.site.shape.micro_batches;
}

// Collectives of the forward and backward pass itself.
void BraidModel::communicate(const Work& w, LayerTime& time) const {
  const LayerShape& shape = w.facts.shape;
  const Strategy& s = w.strategy;
  const auto element = static_cast<double>(bytes_of(settings_.precision));
  const double tokens = w.samples * static_cast<double>(shape.tokens) / s.cp;
  const double hidden = tokens * static_cast<double>(shape.hidden) * element;
  // Of the encoder's tokens that a decoder looks at, and of the decoder's that an embedding makes.
  const double crossed = w.samples * static_cast<double>(shape.cross_tokens) / s.cp;
  const double other = (crossed + w.samples * static_cast<double>(shape.carried_tokens) / s.cp) *
                       static_cast<double>(shape.hidden) * element;
  const bool repeats = s.recompute == Recompute::full;
  const GroupShape group = group_along(w.site.mesh, s, Axis::tensor);
  double forward = 0, backward = 0;
  // Of one prediction a sample.
  const double pooled = w.samples * static_cast<double>(shape.hidden) * element;
  // Ranks that cut a pair of rows exchange tokens ahead of merging, under either kind.
  const bool moves = shape.kind == LayerKind::merge && !merges_in_place(shape, s.tp);
  const double neighbours = moves ? network_.all_to_all(hidden / s.tp, group, w.where) : 0;

  if (s.tp_kind == TensorKind::spatial_temporal) {
    communicate_in_square(w, time);
  } else if (s.tp > 1 && s.tp_kind == TensorKind::megatron) {
    double gather = network_.all_gather(hidden, group, w.where);
    double scatter = network_.reduce_scatter(hidden, group, w.where);
    switch (shape.kind) {
      case LayerKind::block:
        communicate_in_block(w, time);
        break;
      case LayerKind::embedding:
        if (shape.patch_inputs > 0) break;  // each rank makes its own tokens
        forward = scatter + network_.reduce_scatter(other, group, w.where);
        backward = gather + network_.all_gather(other, group, w.where);
        break;
      case LayerKind::head: {
        // Forward goes on to the gradient of its input. Between them each token's largest logit,
        // then its sum of exponentials and its label's logit, all in fp32.
        const double word = (shape.pooled ? w.samples : tokens) * 4;
        // A class token goes from the rank that has it to all, a mean is a sum of theirs; and its
        // gradient back.
        if (shape.pooled) gather = scatter = network_.all_reduce(pooled, group, w.where);
        forward = gather + scatter + network_.all_reduce(word, group, w.where) +
                  network_.all_reduce(2 * word, group, w.where);
        break;
      }
      case LayerKind::merge: {
        // The norm's output is gathered, and again for the weights' gradient. Columns of the output
        // are exchanged for tokens, and so is their gradient.
        const double output =
            w.samples * static_cast<double>(boundary_bytes(shape, settings_.precision).value());
        const double columns = network_.all_to_all(output / s.tp, group, w.where);
        forward = gather + columns + neighbours;
        backward = gather + scatter + columns + neighbours;
        break;
      }
    }
  } else if (s.tp > 1 && shape.attention != AttentionKind::none) {
    // Ulysses: q, k, v to heads and the output back to tokens, each a rank's share; backward the
    // same with their gradients, and the output once more for the weights' gradient.
    const auto share = [&](double rows, std::int64_t heads) {
      const double bytes = rows / s.tp * static_cast<double>(heads * shape.head_dim) * element;
      return network_.all_to_all(bytes, group, w.where);
    };
    double wide = share(tokens, shape.heads), narrow = share(tokens, shape.kv_heads);
    if (crossed > 0) {
      wide *= 2;
      narrow += share(crossed, shape.kv_heads);
    }
    forward = 2 * wide + 2 * narrow;
    backward = 3 * wide + 2 * narrow + (repeats ? forward : 0);
  } else if (s.tp > 1 && shape.kind == LayerKind::merge) {
    forward = backward = neighbours;
  } else if (s.tp > 1 && shape.pooled && !shape.class_token) {
    // A mean of all tokens, and its gradient from the rank that predicts.
    forward = backward = network_.all_reduce(pooled, group, w.where);
  } else if (s.tp > 1 && shape.kind == LayerKind::block && shape.heads == 0) {
    // Nothing is known of the heads: four tensors of the hidden width.
    forward = 4 * network_.all_to_all(hidden / s.tp, group, w.where);
    backward = forward * (repeats ? 2 : 1);
  }
  time.forward_tensor += correction_.tensor * forward;
  time.backward_tensor += correction_.tensor * backward;
  if (time.forward_tensor > 0 && s.tp_kind != TensorKind::spatial_temporal) {
    // Each collective begins when the last of its ranks has come.
    const double meetings = shape.kind == LayerKind::block ? kMeetings : 1;
    time.forward_tensor += waiting(s.tp, w.compute.forward, meetings);
    time.backward_tensor += waiting(s.tp, w.compute.all_backward(), meetings);
  }

  if (s.cp > 1 && shape.attention != AttentionKind::none) {
    // The ring passes keys and values around once, beside attention. Backward passes them again,
    // and their fp32 gradients, for which attention waits.
    const GroupShape ring = group_along(w.site.mesh, s, Axis::context);
    // Where there are fewer heads than ranks, several pass the same ones; so do the rows of a
    // square that share the tokens.
    const std::int64_t own_rows = rows_share_samples(s, w.site.micro_batch) ? s.square : 1;
    const std::int64_t kv_ways =
        s.square > 1 ? s.tensor_split() * own_rows
                     : std::min<std::int64_t>(s.tp, std::max<std::int64_t>(1, shape.kv_heads));
    const double row = 2 * static_cast<double>(shape.kv_heads * shape.head_dim) * element /
                       static_cast<double>(kv_ways);
    const Overlap beside = overlap(w, Collective::point_to_point, 2);
    const auto shift = [&](double bytes) {
      return correction_.context * network_.ring_shift(bytes, ring, w.where);
    };
    // Self-attention's and cross-attention's ring.
    const auto shifts = [&](double bytes) {
      return shift(tokens * bytes) + (crossed > 0 ? shift(crossed * bytes) : 0);
    };
    const double keys = (s.cp - 1) * shifts(row);
    const double gradients = s.cp * shifts(row * 4 / element);
    const double once = beside.exposed(w.compute.attention, keys);
    const double again = beside.exposed(kScoresBackward * w.compute.attention, keys);
    const bool attends_again = repeats || s.recompute == Recompute::selective;
    time.forward_context = once;
    time.backward_context = again + gradients + (attends_again ? once : 0);
    time.hidden_context =
        std::max(0.0, keys - once) * (attends_again ? 2 : 1) + std::max(0.0, keys - again);
  }

  if (s.ep > 1) {
    // A rank's own tokens go to their experts and come back. How many, it tells first.
    const GroupShape experts = expert_group(w.site.mesh, s);
    const double routed = hidden / s.tp * static_cast<double>(shape.experts_per_token);
    const double pass = 2 * network_.all_to_all(routed, experts, w.where);
    const double first =
        pass +
        network_.all_to_all(static_cast<double>(shape.experts) * kCountBytes, experts, w.where);
    time.forward_expert = correction_.tensor * first;
    time.backward_expert = correction_.tensor * (pass + (repeats ? first : 0));
  }
}

// Compute of the blocks' backward that their own gradients leave to those of the head, which come
// first: as if all blocks of the stage were split like the head.
double BraidModel::spare_backward(const Work& head) const {
  const auto block =
      std::ranges::find(facts_, LayerKind::block, [](const Facts& f) { return f.shape.kind; });
  if (head.facts.shape.kind != LayerKind::head || block == facts_.end()) return 0;
  const Strategy& s = head.strategy;
  const Compute c = compute(*block, s, head.samples, head.device, head.site.shape);
  const double own =
      correction_.sharding *
      network_.all_reduce(parameters(*block, s, head.site) *
                              static_cast<double>(bytes_of(settings_.gradient_precision)),
                          replica_group(head.site.mesh, s), head.where);
  const double blocks = static_cast<double>(model_.num_layers() - 2) / head.site.shape.stages;
  return blocks * std::max(0.0, c.backward_input + c.backward_weight - own);
}

Overlap BraidModel::overlap(const Work& w, Collective op, int ranks) const {
  return overlap_of(profile_, op, ranks, settings_.assumptions.overlap_slowdown,
                    w.compute.forward + w.compute.all_backward());
}

// ZeRO and gradient reduction: what runs beside compute, and what it leaves exposed.
void BraidModel::synchronise(const Work& w, LayerTime& time) const {
  const Strategy& s = w.strategy;
  const auto weight_bytes = static_cast<double>(bytes_of(settings_.precision));
  const auto gradient_bytes = static_cast<double>(bytes_of(settings_.gradient_precision));
  const GroupShape replicas = replica_group(w.site.mesh, s);
  const GroupShape expert_replicas = expert_replica_group(w.site.mesh, s);
  const auto over_replicas = [&](auto collective, double bytes) {
    return correction_.sharding *
           ((network_.*collective)(w.dense * bytes, replicas, w.where) +
            (network_.*collective)(w.experts * bytes, expert_replicas, w.where));
  };
  const auto beside = [&](Collective op) { return overlap(w, op, replicas.size); };
  const double gather = over_replicas(&Network::all_gather, weight_bytes);
  const double scatter = over_replicas(&Network::reduce_scatter, gradient_bytes);
  const double backward = w.compute.all_backward();

  const bool gathers = s.zero == Zero::parameters;
  const bool scatters_at_once = s.zero == Zero::gradients || s.zero == Zero::parameters;
  Beside beside_backward;
  if (gathers) {
    Beside beside_forward;
    beside_forward.add(gather, beside(Collective::all_gather));
    time.forward_gather = beside_forward.exposed(w.compute.forward);
    beside_backward.add(gather, beside(Collective::all_gather));
  }
  if (scatters_at_once && w.site.shape.micro_batches > 1)
    beside_backward.add(scatter, beside(Collective::reduce_scatter));
  // A head has gradients in forward already; backward waits for them to be scattered.
  if (scatters_at_once && w.facts.shape.kind == LayerKind::head)
    beside_backward.add(scatter, beside(Collective::reduce_scatter));
  time.backward_gather = beside_backward.exposed(backward);
  time.hidden_gather = std::max(0.0, (gathers ? gather : 0) + beside_backward.seconds() -
                                         time.forward_gather - time.backward_gather);

  // On the last micro-batch the reduction runs beside backward as well.
  Beside last = beside_backward;
  if (s.zero == Zero::none) {
    last.add(over_replicas(&Network::all_reduce, gradient_bytes), beside(Collective::all_reduce));
  } else if (s.zero == Zero::optimizer || w.site.shape.micro_batches == 1) {
    last.add(scatter, beside(Collective::reduce_scatter));
  }
  time.reduce = std::max(0.0, last.exposed(backward + spare_backward(w)) - time.backward_gather);
  time.hidden_reduce = std::max(0.0, last.seconds() - beside_backward.seconds() - time.reduce);
  time.reduce += waiting_at_the_end(w);
  // Updated weights are gathered at the end of the step.
  if (s.zero == Zero::optimizer || s.zero == Zero::gradients) time.regather = gather;
  if (w.facts.shape.kind == LayerKind::embedding && w.site.mesh.devices > 1) {
    // Copies of its table, and of one that blocks share, are made from whole weights, and their
    // gradients added to whole ones.
    const int copies = (model_.type_of(model_.num_layers() - 1).shape.tied ? 1 : 0) +
                       (w.facts.shape.position_bias > 0 ? 1 : 0);
    if (gathers) time.regather += copies * gather;
    if (scatters_at_once) time.reduce += copies * scatter;
  }
  // Elements of gradients that pass through memory beside the products that make them, for each
  // micro-batch.
  const bool timed = w.facts.times && w.facts.shape.kind == LayerKind::block;
  const auto passed = [&](double elements, int copies) {
    const bool scatters = scatters_at_once && copies > 1;
    double passes = 0;
    // A rank's share of a scattered gradient is added to what was there.
    if (scatters) passes += 3.0 / copies;
    // Layers are measured while they add to gradients. The first micro-batch, or each one whose
    // gradients are scattered, writes them and need not read.
    if (timed) passes -= scatters ? 1.0 : 1.0 / static_cast<double>(w.site.shape.micro_batches);
    return passes * elements;
  };
  const double elements =
      passed(w.dense, replicas.size) + passed(w.experts, expert_replicas.members());
  time.backward_weight_compute = std::max(
      0.0, time.backward_weight_compute + elements * gradient_bytes / memory_rate(w.device));

  const double shards = s.zero == Zero::none ? 1 : replicas.size;
  const double expert_shards = s.zero == Zero::none ? 1 : expert_replicas.members();
  time.update = update_time(w.dense / shards + w.experts / expert_shards, w.device);
  if (w.tied > 0 && w.site.shape.stages > 1) {
    // The copy's gradient goes to the embedding, and updated rows come back. In one stage, which
    // splits both alike as a rule, they stay where they are.
    const DeviceSpan first = devices_of_stage(0, w.site.mesh);
    const auto sent = [&](double bytes) {
      return correction_.transfer * network_.transfer(w.tied * bytes, w.where, first);
    };
    time.reduce += sent(gradient_bytes);
    time.regather += sent(weight_bytes);
  }
  // What every iteration takes, whatever the plan: once, with the last layer.
  if (w.facts.shape.kind == LayerKind::head) time.update += correction_.step_overhead.value();
}

double BraidModel::update_time(double elements, const DeviceType& device) const {
  // All layers are updated in one go, so that the rate over many elements counts.
  if (profile_ != nullptr && !profile_->updates.empty()) {
    const UpdateSample& largest =
        *std::ranges::max_element(profile_->updates, {}, &UpdateSample::elements);
    return correction_.update * elements * largest.seconds.value() /
           static_cast<double>(largest.elements);
  }
  return correction_.update * elements * settings_.assumptions.optimizer_traffic /
         memory_rate(device);
}

}  // namespace braid
