#include "planner/validate/split.h"

#include <algorithm>
#include <cmath>

#include "planner/cost/pipeline.h"
#include "planner/simulate/simulator.h"
#include "planner/validate/links.h"

namespace braid {
namespace {

constexpr double kHalf = 2;  // bytes of an activation

// The larger of two, rounded where they come close: launches and kernels that take turns at being
// late cost more than either alone.
double slower_of(double a, double b, double sharpness) {
  const double most = std::max(a, b), least = std::min(a, b);
  if (least <= 0) return most;
  return most * std::pow(1 + std::pow(least / most, sharpness), 1 / sharpness);
}

class Pricer {
 public:
  Pricer(const ModelShape& model, const RunSplit& split, const RunSetup& setup)
      : model_(model),
        split_(split),
        setup_(setup),
        program_(setup.program),
        links_(split, setup) {}

  RunPrediction price() const {
    std::vector<StageTimes> times;
    times.reserve(split_.stages.size());
    for (int i = 0; i < num_stages(); ++i) times.push_back(stage(i));
    PipelineShape shape;
    shape.schedule = split_.interleave > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
    shape.stages = num_stages();
    shape.micro_batches = split_.micro_batches;
    shape.chunks = split_.interleave;
    if (!schedulable(shape)) {
      shape.schedule = ScheduleKind::one_f_one_b;
      shape.chunks = 1;
    }
    const double seconds = simulate(shape, times).iteration.value() + program_.iteration;
    return {.seconds = seconds,
            .lower = seconds * (1 - setup_.interval),
            .upper = seconds * (1 + setup_.interval),
            .bound = bound()};
  }

  double stage_seconds(int index) const {
    const StageTimes t = stage(index);
    return (t.forward + t.backward_input + t.backward_weight).value();
  }

 private:
  // Forward and both gradients of all products, once, spread over all devices at their peaks.
  double bound() const {
    double flops = 0;
    for (const Item& item : model_.items) {
      if (item.kind == ItemKind::head) flops += 6 * model_.vocabulary * model_.hidden * model_.seq;
      if (item.kind != ItemKind::block) continue;
      const Block& b = item.block;
      const double tokens = b.seq * b.windows;
      // Causal attention needs half of the scores.
      flops += 6 * b.parameters() * tokens + 6 * b.share * tokens * b.seq * b.hidden;
    }
    const double samples =
        static_cast<double>(split_.micro_batch) * split_.micro_batches * split_.dp;
    double rate = 0;
    for (int i = 0; i < num_stages(); ++i) {
      const DeviceModel& on = device(i);
      const RunStage& s = stage_at(i);
      rate +=
          s.tp * split_.cp * split_.dp * (split_.fp8 ? std::max(on.peak, on.peak_fp8) : on.peak);
    }
    return flops * samples / rate;
  }

  const DeviceModel& device(int stage) const {
    // The slowest of the devices that the stage has.
    const int first = split_.devices_before(stage);
    const int count = stage_at(stage).tp * split_.cp * split_.dp;
    const DeviceModel* slowest = nullptr;
    for (int node = first / setup_.fabric.node_width;
         node <= (first + count - 1) / setup_.fabric.node_width; ++node) {
      const auto index = std::min(static_cast<std::size_t>(node), setup_.devices.size() - 1);
      const DeviceModel& candidate = setup_.devices[index];
      if (slowest == nullptr || candidate.peak * candidate.gemm < slowest->peak * slowest->gemm)
        slowest = &candidate;
    }
    return *slowest;
  }

  struct Passes {
    double forward = 0, backward = 0;
    double host_forward = 0, host_backward = 0;
    double tensor_forward = 0, tensor_backward = 0;
    double scores_forward = 0;  // attention's own part, which selective recomputation repeats

    Passes& operator+=(const Passes& more) {
      forward += more.forward;
      backward += more.backward;
      host_forward += more.host_forward;
      host_backward += more.host_backward;
      tensor_forward += more.tensor_forward;
      tensor_backward += more.tensor_backward;
      return *this;
    }
    Passes& operator*=(double share) {
      for (double* one : {&forward, &backward, &host_forward, &host_backward, &tensor_forward,
                          &tensor_backward, &scores_forward})
        *one *= share;
      return *this;
    }
  };

  Passes block(const Block& b, int stage, const DeviceModel& device) const {
    const int tp = stage_at(stage).tp;
    const double samples = split_.micro_batch * b.windows;
    const double tokens = samples * b.seq / split_.cp;
    const double h = b.hidden;
    const double kv = b.kv_heads / b.heads;
    const bool fp8 = split_.fp8 && device.peak_fp8 > 0;
    Passes p;
    const auto linear = [&](double n, double k) {
      p.forward += product_time(device, {tokens, n, k}, fp8);
      p.backward +=
          product_time(device, {tokens, k, n}, fp8) + product_time(device, {n, k, tokens}, fp8);
    };
    linear(h * (1 + 2 * kv) / tp, h);
    linear(h, h / tp);
    linear((b.gated ? 2 : 1) * b.ffn / tp, h);
    linear(h, b.ffn / tp);
    attention(b, samples, tp, device, p);
    const double replicated = split_.sequence_parallel ? 1.0 / tp : 1.0;
    double per_element = program_.traffic;
    if (split_.eager) per_element *= program_.eager;
    if (split_.rowwise) per_element *= program_.rowwise;
    const double traffic =
        tokens * h * per_element * (0.55 * replicated + 0.45 * (b.ffn / (4 * h)) / tp);
    p.forward += streaming_time(device, traffic) + kSmallKernels * device.kernel;
    p.backward += 1.5 * streaming_time(device, traffic) + 1.6 * kSmallKernels * device.kernel;
    p.host_forward += program_.host_forward;
    p.host_backward += program_.host_backward;
    if (tp > 1) {
      const double exposed = 1 - program_.tensor_overlap;
      const double once = links_.all_reduce(tokens * h * kHalf, {tp, 1}, stage) * exposed;
      p.tensor_forward = p.tensor_backward = 2 * once;
      p.host_forward += 2 * program_.host_collective;
      p.host_backward += 2 * program_.host_collective;
    }
    if (split_.cp > 1) {
      // Keys and values once around the ring, and their gradients back, under attention.
      const double bytes = 2 * kv * h / tp * tokens * split_.cp * kHalf;
      const double around = links_.all_gather(bytes, {split_.cp, tp}, stage);
      p.tensor_forward += std::max(0.0, around - p.scores_forward);
      p.tensor_backward += std::max(0.0, 2 * around - 2 * p.scores_forward);
    }
    p *= b.share;
    return p;
  }

  void attention(const Block& b, double samples, int tp, const DeviceModel& device,
                 Passes& p) const {
    // A lone head is computed by all tensor ranks.
    const double heads = std::ceil(b.heads / tp);
    const double scores = samples * heads * b.seq * b.seq / split_.cp;
    const double flops = 4 * scores * b.hidden / b.heads;
    if (split_.flash) {
      // Causal: half of the scores are never touched. Backward computes them anew. Around a ring of
      // consecutive pieces the last device has all of its scores to compute.
      const double uneven = program_.balances_ring ? 1 : 2 - 1.0 / split_.cp;
      const double forward = uneven * flops / 2 / (device.peak * device.flash) + device.kernel;
      p.scores_forward = forward;
      p.forward += forward;
      p.backward += 2.5 * forward;
      return;
    }
    const double products = flops / (device.peak * device.batched) + 2 * device.kernel;
    // Megatron-LM's fused softmax wants the heads of a micro-batch in fours.
    const bool unfused = std::fmod(samples * heads, 4) != 0;
    const double more = unfused ? program_.unfused_traffic : 0;
    const double forward = streaming_time(device, scores * (program_.score_traffic + more));
    const double backward = streaming_time(device, scores * (1.25 * program_.score_traffic + more));
    p.scores_forward = products + forward;
    p.forward += products + forward;
    p.backward += 2 * products + backward;
    if (unfused) {
      p.host_forward += program_.host_unfused;
      p.host_backward += program_.host_unfused;
    }
  }

  double vocabulary(int tp) const {
    if (tp == 1 && !program_.pads_vocabulary) return model_.vocabulary;
    const double unit = 128.0 * tp;
    return std::ceil(model_.vocabulary / unit) * unit;
  }

  Passes head(int tp, const DeviceModel& device) const {
    Passes p;
    if (model_.vocabulary == 0) return p;
    const double tokens = split_.micro_batch * model_.seq / split_.cp;
    const double v = vocabulary(tp) / tp;
    const double loss = streaming_time(device, tokens * v * program_.loss_traffic);
    p.forward = product_time(device, {tokens, v, model_.hidden}) + loss / 2;
    p.backward = product_time(device, {tokens, model_.hidden, v}) +
                 product_time(device, {v, model_.hidden, tokens}) + loss / 2;
    return p;
  }

  double parameters(const RunStage& stage) const {
    double sum = 0;
    for (int i = stage.begin; i < stage.end; ++i) {
      const Item& item = model_.items[static_cast<std::size_t>(i)];
      if (item.kind == ItemKind::block) sum += item.block.parameters();
      if (item.kind == ItemKind::embedding || item.kind == ItemKind::head)
        sum += (model_.splits_tables ? 1 : stage.tp) * model_.vocabulary * model_.hidden;
    }
    const bool whole = split_.stages.size() == 1;
    if (whole && model_.tied) sum -= model_.vocabulary * model_.hidden;
    return sum / stage.tp;
  }

  // All blocks of a stage, and its head: what one micro-batch takes, recomputation included.
  Passes passes_of(int index) const {
    const RunStage& s = stage_at(index);
    const DeviceModel& on = device(index);
    double again = s.repeated * program_.repeats;
    if (split_.selective) again += program_.selective_repeats;
    const bool scores_again = split_.selective && program_.selective_repeats == 0;
    Passes all, one;
    const Block* priced = nullptr;
    bool ends = index == 0;
    for (int i = s.begin; i < s.end; ++i) {
      const Item& item = model_.items[static_cast<std::size_t>(i)];
      if (item.kind == ItemKind::head) {
        ends = true;
        all += head(s.tp, on);
      }
      if (item.kind != ItemKind::block) continue;
      if (priced == nullptr || *priced != item.block) one = block(item.block, index, on);
      priced = &item.block;
      all += one;
      all.backward += again * one.forward + (scores_again ? one.scores_forward : 0);
      all.tensor_backward += again * one.tensor_forward;
      all.host_backward += again * one.host_forward;
    }
    const double host = ends ? program_.host_batch : program_.host_stage;
    all.host_forward += host / 3;
    all.host_backward += 2 * host / 3;
    return all;
  }

  // ZeRO-3's gathers of one pass.
  double gathers_of(int index) const {
    const RunStage& s = stage_at(index);
    double sum = 0;
    if (!split_.sharded) return sum;
    for (int i = s.begin; i < s.end; ++i) {
      const Item& item = model_.items[static_cast<std::size_t>(i)];
      if (item.kind == ItemKind::block)
        sum += links_.all_gather(item.block.parameters() / s.tp * kHalf, replicas(s), index);
    }
    return sum;
  }

  // Gradients that are summed after the last backward, beyond what it hides.
  double reduction(int index, double backward) const {
    if (split_.sharded) return 0;
    const RunStage& s = stage_at(index);
    // The last bucket has nothing left to hide behind.
    constexpr double kLastBucket = 0.05;
    const double whole =
        links_.all_reduce(parameters(s) * program_.gradient_bytes, replicas(s), index);
    double exposed = std::max(kLastBucket * whole, whole - program_.overlap * backward);
    if (index == 0 || index + 1 == num_stages()) exposed += tied_reduction(index);
    return exposed;
  }

  StageTimes stage(int index) const {
    const RunStage& s = stage_at(index);
    const Passes all = passes_of(index);
    // Parameters come in twice, gradients leave once, each under a pass's compute.
    const double gathers = gathers_of(index);
    double forward =
        slower_of(all.forward + all.tensor_forward, all.host_forward, program_.sharpness) +
        std::max(0.0, gathers - program_.gather_overlap * all.forward);
    double backward =
        slower_of(all.backward + all.tensor_backward, all.host_backward, program_.sharpness) +
        std::max(0.0, 2 * gathers - program_.gather_overlap * all.backward);
    const double sent = index + 1 < num_stages() ? send(index) : 0;
    forward += program_.send_exposed * sent;
    backward += program_.send_exposed * sent;
    const double shards = program_.shards_optimizer ? split_.dp * split_.cp : 1;
    return {.forward = Seconds(forward),
            .backward_input = Seconds(backward / 2),
            .backward_weight = Seconds(backward / 2),
            .reduce = Seconds(reduction(index, backward)),
            .update = Seconds(
                streaming_time(device(index), parameters(s) / shards * program_.optimizer_bytes)),
            .transfer = Seconds(sent)};
  }

  int num_stages() const { return static_cast<int>(split_.stages.size()); }
  const RunStage& stage_at(int index) const {
    return split_.stages[static_cast<std::size_t>(index)];
  }
  DeviceGroup replicas(const RunStage& s) const { return {split_.dp * split_.cp, s.tp}; }

  double send(int index) const {
    const RunStage& s = stage_at(index);
    double width = model_.hidden, seq = model_.seq, windows = 1;
    for (int i = s.end - 1; i >= s.begin; --i) {
      const Item& item = model_.items[static_cast<std::size_t>(i)];
      if (item.kind != ItemKind::block) continue;
      width = item.block.hidden;
      seq = item.block.seq;
      windows = item.block.windows;
      break;
    }
    return links_.send(split_.micro_batch * windows * seq / split_.cp * width * kHalf, index);
  }

  // A table shared by the first and the last stage: its gradients are summed between the two.
  double tied_reduction(int index) const {
    if (!model_.tied || model_.vocabulary == 0 || split_.stages.size() == 1) return 0;
    const double bytes = model_.vocabulary * model_.hidden / stage_at(index).tp;
    return links_.between_ends(bytes * program_.gradient_bytes, index);
  }

  static constexpr double kSmallKernels = 12;

  const ModelShape& model_;
  const RunSplit& split_;
  const RunSetup& setup_;
  const Program& program_;
  const RunLinks links_;
};

}  // namespace

int RunSplit::devices_before(int stage) const {
  int devices = 0;
  for (int i = 0; i < stage; ++i) devices += stages[static_cast<std::size_t>(i)].tp * cp * dp;
  return devices;
}

RunPrediction price(const ModelShape& model, const RunSplit& split, const RunSetup& setup) {
  return Pricer(model, split, setup).price();
}

double stage_seconds(const ModelShape& model, const RunSplit& split, const RunSetup& setup,
                     int stage) {
  return Pricer(model, split, setup).stage_seconds(stage);
}

}  // namespace braid
