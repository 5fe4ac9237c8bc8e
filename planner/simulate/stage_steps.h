#pragma once
// What one device of a stage makes and frees while it plays its list, in the runtime's order
// (runtime/parallel/stage.cpp, runtime/parallel/flat_buffer.cpp). Who listens decides what becomes
// of it: a sum, or an allocator's events.

#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "planner/core/block_pool.h"
#include "planner/simulate/layer_tensors.h"
#include "planner/simulate/schedule.h"

namespace braid {

class TensorListener {
 public:
  virtual ~TensorListener() = default;
  virtual int made(Bytes size) = 0;  // a name for it, not negative
  virtual void freed(int tensor) = 0;
};

class StageSteps {
 public:
  // The layers of each chunk. States are made at once, and stay; so do gradients that stay.
  StageSteps(const PipelineShape& shape, int stage, std::vector<std::vector<LayerTensors>> chunks,
             TensorListener& listener);

  void step(const OpList& list);

 private:
  static constexpr int kNone = -1;
  using Tensors = std::vector<int>;
  using Unit = std::pair<int, int>;  // chunk and micro-batch

  // A whole that its group gathers or sums up, in the group's own memory (comm::Group::allocate):
  // a block is made once and stays.
  struct Whole {
    BlockPool* pool = nullptr;
    BlockPool::Block block = BlockPool::kNone;
  };

  // Gradients of a layer: none, or what earlier micro-batches left; and those of one micro-batch
  // that are being scattered.
  struct Gradients {
    bool exist = false, scattering = false;
    Tensors stored;
    Whole whole;    // being made
    Whole leaving;  // being summed up
    int arriving = kNone;
  };

  // What waits between the halves of a layer's backward.
  struct Deferred {
    int tensor = kNone;
    std::vector<Whole> wholes;
  };

  class Gathered;

  int make(Bytes size) { return size > Bytes() ? listener_.made(size) : kNone; }
  void drop(int& tensor);
  Whole make_whole(Bytes size, BlockPool& pool);
  void drop(Whole& whole);
  Tensors make_all(std::span<const Bytes> sizes);
  void drop_all(Tensors& tensors);
  void post(std::deque<int>& box, int tensor);

  void play(const Op& op);
  void forward(const Op& op);
  void backward(const Op& op, bool input_only);
  void backward_weight(const Op& op);
  Deferred defer(const LayerTensors& layer);
  // The micro-batch's weight gradients: room for them, and their way to the shares.
  void begin_gradients(const LayerTensors& layer, Gradients& gradients);
  void end_gradients(const LayerTensors& layer, Gradients& gradients);
  void settle(Gradients& gradients);
  void finish_gradients(const Op& op, std::size_t place);
  void update();

  PipelineShape shape_;
  int stage_;
  std::vector<std::vector<LayerTensors>> chunks_;
  TensorListener& listener_;
  // The memory of a group, and what each whole has room for in it.
  struct Room {
    BlockPool pool;
    Bytes weights, gradients;
  };
  std::map<int, Room> rooms_;                      // by how many replicas there are
  std::map<int, BlockPool> tensor_pools_;          // by how many ranks a tensor group has
  std::vector<std::vector<Gradients>> gradients_;  // as chunks_
  std::map<Unit, std::vector<Tensors>> saved_;
  std::map<Unit, std::vector<Deferred>> deferred_;  // the last layer first
  std::deque<int> activations_sent_, gradients_sent_;
};

// The most bytes that live at once during a step.
Bytes peak_of_step(const PipelineShape& shape, int stage,
                   std::vector<std::vector<LayerTensors>> chunks);

}  // namespace braid
