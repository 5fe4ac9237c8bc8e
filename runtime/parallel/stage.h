#pragma once
// One rank's share of a plan at work: its layers, what it keeps for the micro-batches in flight,
// and what it passes to its neighbours. Plays a schedule's list.

#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "planner/plan/plan.h"
#include "runtime/parallel/layer.h"
#include "runtime/parallel/redistribute.h"
#include "runtime/parallel/schedule_player.h"
#include "runtime/parallel/streams.h"

namespace braid::parallel {

// Gives a layer what enters from outside in a micro-batch.
enum class Pass { forward, backward };  // tokens are asked for in forward alone
using FeedSource = std::function<Feed(const Layer& layer, int micro_batch, Pass pass)>;

struct StageHooks {
  FeedSource feed;
  std::function<void()> before_reduce;  // gradients of all micro-batches are there
  std::function<void()> update;
};

// Whether a layer's weight gradients wait for the next communication: it has some itself.
bool hides_communication(const Layer& layer);

class Stage : public StageWork {
 public:
  // `layers` in the order of the stage's chunks; they outlive the stage.
  Stage(const Plan& plan, int device, bool causal, const Numerics& numerics,
        const std::vector<Layer*>& layers, Groups& groups, StageHooks hooks);

  void forward(int chunk, int micro_batch) override;
  void backward(int chunk, int micro_batch) override;
  void backward_input(int chunk, int micro_batch) override;
  void backward_weight(int chunk, int micro_batch) override;
  void send_activation(int chunk, int micro_batch) override;
  void receive_activation(int chunk, int micro_batch) override;
  void send_gradient(int chunk, int micro_batch) override;
  void receive_gradient(int chunk, int micro_batch) override;
  void reduce() override;
  void update() override;

  // Waits for what is still being sent; nothing of a step may remain.
  void finish_step();
  // Forgets a step that failed half-way.
  void abandon_step();

  // Bytes kept for backward: the most at one moment since the stage was made.
  std::int64_t peak_saved() const { return peak_saved_; }

 private:
  struct Step {
    Layer* layer = nullptr;
    std::unique_ptr<Redistribution> enter, leave;  // of activations, and of gradients back
    // Of an encoder-decoder: the same for the stream beside it; whether the two change places ahead
    // of this layer, as the decoder begins with it; and from what the chunk keeps for
    // cross-attention to what this layer looks at.
    std::unique_ptr<Redistribution> side_enter, side_leave, recall;
    bool swaps = false;
    bool looks_aside = false;
  };
  struct Chunk {
    std::vector<Step> steps;
    StreamShapes arriving;  // of what comes from the previous virtual stage
    StreamShapes leaving;   // of what goes to the next one
    int landed = 0;         // micro-batches whose weight gradients are made
  };
  // One micro-batch in a chunk.
  struct Flight {
    std::vector<Saved> saved;      // by layer
    std::vector<WeightWork> work;  // by layer, between the halves of backward
    std::int64_t bytes = 0;
    // What cross-attention looks at, as the first layer that does has it. All layers share it, so
    // it is none of their bytes.
    at::Tensor beside;
  };
  using Key = std::pair<int, int>;  // chunk, micro-batch
  struct Sending {
    comm::Handle handle;
    at::Tensor tensor;
  };

  // Whether the layer's products round their factors to 8 bits.
  bool rounds(const Layer& layer) const;
  void run_backward(int chunk, int micro_batch, bool weights_too);
  // After a layer's weight gradients of one micro-batch. The layer before it in this order has had
  // the time of this one to scatter its own.
  void finish_gradients(const Chunk& chunk, std::size_t step);
  void land(const Key& key);
  // Messages under way on one channel, oldest first.
  using Outbox = std::deque<Sending>;
  void post(comm::Group& channel, Outbox& outbox, const at::Tensor& message, const Op& op);
  Streams fetch(comm::Group& channel, const StreamShapes& shapes, const Op& op);
  bool lone() const { return shape_.stages == 1; }

  PipelineShape shape_;
  int stage_;
  Numerics numerics_;
  StageHooks hooks_;
  std::vector<Chunk> chunks_;
  std::map<Key, Flight> flights_;
  std::map<Key, Streams> activations_, gradients_;  // at a chunk's door, either side
  // Two-rank channels: with the previous and the next stage, for activations and gradients.
  GroupPtr activation_in_, activation_out_, gradient_in_, gradient_out_;
  int previous_ = -1, next_ = -1;  // the devices behind those channels
  Outbox activations_sent_, gradients_sent_;
  std::int64_t saved_ = 0, peak_saved_ = 0;
};

}  // namespace braid::parallel
