// The rules a plan keeps, whoever wrote it. Nothing is repaired: the first broken rule is named
// with its place in the file.

#include <fmt/core.h>

#include <algorithm>

#include "planner/core/error.h"
#include "planner/core/limits.h"
#include "planner/core/text.h"
#include "planner/plan/legal.h"
#include "planner/plan/plan.h"

namespace braid {

namespace {

class PlanCheck {
 public:
  PlanCheck(const Plan& plan, const std::string& source) : plan_(plan), source_(source) {}

  // In this order: each pass relies on those before it.
  void run() const {
    check_precision();
    check_schedule();
    check_devices();
    check_batch();
    check_cover();
    for (std::size_t i = 0; i < plan_.stages.size(); ++i) {
      check_block(i);
      check_strategies(i);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& place, std::string what, std::string fix) const {
    throw Error({.what = std::move(what),
                 .where = fmt::format("{}: {}", source_, place),
                 .fix = std::move(fix)});
  }

  void check_precision() const {
    if (!can_have_gradients(plan_.precision, plan_.gradient_precision))
      fail("gradient_precision", "gradients in bf16 of a model that computes in fp32",
           "set it to \"fp32\", or precision to \"bf16\"");
  }

  void check_schedule() const {
    const PipelineShape& shape = plan_.shape;
    if (shape.stages < 1 || plan_.stages.size() != static_cast<std::size_t>(shape.stages))
      fail("stages",
           fmt::format("{} stages stand in a pipeline of {}", plan_.stages.size(), shape.stages),
           "give at least one stage, and each one its layers");
    if (schedulable(shape)) return;
    if (shape.micro_batches < 1)
      fail("micro_batches", fmt::format("{} micro-batches", shape.micro_batches),
           "give at least one");
    const std::int64_t chunks = std::int64_t{shape.stages} * std::max(shape.chunks, 1);
    if (chunks > limits::kPasses.high / shape.micro_batches)
      fail("micro_batches",
           fmt::format("{} micro-batches through {} chunks of layers are too many to play",
                       shape.micro_batches, chunks),
           fmt::format("choose at most {} micro-batches", limits::kPasses.high / chunks));
    if (shape.chunks < 1 || shape.schedule != ScheduleKind::interleaved)
      fail("chunks",
           fmt::format("{} chunks a stage under '{}'", shape.chunks, name_of(shape.schedule)),
           fmt::format("set chunks to 1, or schedule to \"{}\"",
                       name_of(ScheduleKind::interleaved)));
    fail("micro_batches",
         fmt::format("{} interleaved micro-batches do not pass {} stages in whole groups",
                     shape.micro_batches, shape.stages),
         fmt::format("choose a multiple of {}", shape.stages));
  }

  void check_devices() const {
    const int devices = plan_.cluster.num_devices();
    if (devices < 1 || devices % plan_.shape.stages != 0)
      fail("stages",
           fmt::format("{} stages do not share {} devices evenly", plan_.shape.stages, devices),
           fmt::format("use one of {} stages", join(divisors(devices), ", ")));
  }

  void check_batch() const {
    const std::int64_t batch = plan_.global_batch;
    if (batch < 1 || batch % plan_.shape.micro_batches != 0)
      fail("micro_batches",
           fmt::format("{} micro-batches do not divide a global batch of {}",
                       plan_.shape.micro_batches, batch),
           "choose a number that divides the global batch");
  }

  // Chunk c of stage i is virtual stage c·p + i; layers pass the virtual stages in order.
  void check_cover() const {
    const auto chunks = static_cast<std::size_t>(plan_.shape.chunks);
    for (std::size_t i = 0; i < plan_.stages.size(); ++i)
      if (plan_.stages[i].chunks.size() != chunks)
        fail(fmt::format("stages[{}].chunks", i),
             fmt::format("stage {} has {} chunks of layers, the plan {}", i,
                         plan_.stages[i].chunks.size(), chunks),
             "give every stage as many ranges as the plan's \"chunks\"");
    int next = 0;
    std::string place;
    for (std::size_t c = 0; c < chunks; ++c)
      for (std::size_t i = 0; i < plan_.stages.size(); ++i) {
        const LayerRange range = plan_.stages[i].chunks[c];
        place = fmt::format("stages[{}].chunks[{}]", i, c);
        if (range.begin != next || range.end <= range.begin)
          fail(place,
               fmt::format("layers {} to {} stand where layer {} must follow", range.begin,
                           range.end, next),
               fmt::format("begin this range at {}, and give it at least one layer", next));
        next = range.end;
      }
    if (next != plan_.model.num_layers())
      fail(place, fmt::format("the stages end at layer {} of {}", next, plan_.model.num_layers()),
           fmt::format("end this range at {}", plan_.model.num_layers()));
  }

  // A stage without a block would only pass activations on. Merging patches is work enough.
  void check_block(std::size_t i) const {
    const std::vector<int> layers = layers_of(plan_.stages[i]);
    const auto is_block = [&](int layer) {
      const LayerKind kind = plan_.model.type_of(layer).shape.kind;
      return kind == LayerKind::block || kind == LayerKind::merge;
    };
    if (std::ranges::none_of(layers, is_block))
      fail(fmt::format("stages[{}].chunks", i), fmt::format("stage {} has no block", i),
           "move a block here, or use fewer stages");
  }

  void check_strategies(std::size_t i) const {
    const StagePlan& stage = plan_.stages[i];
    const std::vector<int> layers = layers_of(stage);
    if (stage.strategies.size() != layers.size())
      fail(fmt::format("stages[{}].strategies", i),
           fmt::format("{} strategies for {} layers", stage.strategies.size(), layers.size()),
           "give each layer one: the runs' \"layers\" must add up to the stage's");
    std::size_t run = 0;
    for (std::size_t k = 0; k < layers.size(); ++k) {
      const bool repeats = k > 0 && stage.strategies[k] == stage.strategies[k - 1];
      if (k > 0 && !repeats) ++run;
      const std::string& type = plan_.model.type_of(layers[k]).name;
      const bool same_layer = k > 0 && type == plan_.model.type_of(layers[k - 1]).name;
      if (repeats && same_layer) continue;
      check_strategy(layers[k], stage.strategies[k],
                     fmt::format("stages[{}].strategies[{}]", i, run));
    }
  }

  void check_strategy(int layer, const Strategy& s, const std::string& place) const {
    const LayerType& type = plan_.model.type_of(layer);
    const int devices = plan_.mesh().stage_devices();
    // By division: the product of three degrees from a file may not fit in an integer.
    const bool fills = s.tp >= 1 && s.cp >= 1 && devices % s.tp == 0 &&
                       devices / s.tp % s.cp == 0 && devices / s.tp / s.cp == s.dp;
    if (!fills)
      fail(place,
           fmt::format("layer {} ('{}'): tp={} cp={} dp={} do not fill the {} devices of a stage",
                       layer, type.name, s.tp, s.cp, s.dp, devices),
           fmt::format("make tp·cp·dp equal to {}", devices));
    const auto fault = strategy_fault(type.shape, s, plan_.micro_batch());
    if (!fault) return;
    Mistake mistake = describe(*fault, type.shape, s, plan_.micro_batch());
    fail(fmt::format("{}.{}", place, mistake.where),
         fmt::format("layer {} ('{}'): {}", layer, type.name, mistake.what),
         std::move(mistake.fix));
  }

  const Plan& plan_;
  const std::string& source_;
};

}  // namespace

void verify(const Plan& plan, const std::string& source) { PlanCheck(plan, source).run(); }

}  // namespace braid
