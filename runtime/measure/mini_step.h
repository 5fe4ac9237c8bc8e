#pragma once
// A step of a model that was cut down to a few blocks, on one rank of a plan whose other ranks do
// not exist: what each layer computes, without communication. Other ranks' values are copies of
// this one's: a device that multiplies zeros or NaN draws less power and runs faster than it will
// in training. What copying takes does not count.

#include <memory>
#include <vector>

#include "planner/plan/plan.h"
#include "planner/search/questions.h"
#include "runtime/models/model.h"
#include "runtime/ops/device.h"

namespace braid::measure {

struct MiniOptions {
  int block_type = 1;  // index into the model's types
  int blocks = 1;      // as many that one does not find its weights in a cache
  Recompute recompute = Recompute::none;
  parallel::Numerics numerics;
};

class MiniStep {
 public:
  // `rank` of the tp · cp ranks that share a sample.
  MiniStep(const Model& model, const LayerQuestion& question, int rank, const MiniOptions& options);
  MiniStep(const MiniStep&) = delete;  // its world refers to it
  MiniStep& operator=(const MiniStep&) = delete;

  // Seconds of one micro-batch, each of one layer.
  struct Times {
    double embedding_forward = 0, embedding_backward = 0;
    double block_forward = 0, block_backward = 0;
    double head_forward = 0, head_backward = 0;
  };
  Times step();
  void begin_step();  // the same, not waited for
  // The same with the two halves of a block's backward apart.
  struct Halves {
    double input = 0, weight = 0;
  };
  Halves split_step();

  // Short-lived bytes at the worst moment beyond what is kept for backward; -1 where the device's
  // allocator does not count.
  struct Workspace {
    double embedding = -1, block = -1, head = -1;
  };
  Workspace workspace();

 private:
  struct Flight;
  struct Copy {
    ops::Mark begin, end;
  };
  // A moment in a step, and how many copies came before it.
  struct Moment {
    ops::Mark mark;
    std::size_t copies = 0;
  };
  // `between` is called ahead of embedding, blocks and head in forward, of head, blocks and
  // embedding in backward, and at the end.
  template <class Between>
  void pass(Between between);
  void echo(const void* from, void* to, std::int64_t bytes, int times);
  Moment now() const;
  // Seconds between the two that were not spent on copies.
  double between(const Moment& begin, const Moment& end) const;
  parallel::Feed feed(const parallel::Layer& layer) const;
  at::Tensor run(std::size_t layer, at::Tensor x, Flight& flight);
  at::Tensor run_back(std::size_t layer, const at::Tensor& dy, Flight& flight,
                      parallel::WeightWork& work);
  bool changes_streams(std::size_t layer) const;
  // One layer's pass, by what its allocator says.
  template <class Pass>
  double bytes_beyond(const at::Tensor& enters, Pass pass);

  MiniOptions options_;
  std::vector<Copy> copies_;  // of the step under way
  std::shared_ptr<comm::Group> world_;
  parallel::Groups groups_;
  models::RankModel model_;
  std::vector<parallel::Layer*> layers_;
};

}  // namespace braid::measure
