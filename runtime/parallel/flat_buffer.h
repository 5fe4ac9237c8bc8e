#pragma once
// Parameters of one layer as one flat tensor, with their gradients and optimizer states, sharded
// over the replicas as ZeRO says:
//
//   zero              weights   gradients   states
//   none              whole     whole       whole
//   optimizer (1)     whole     whole       shard
//   gradients (2)     whole     shard       shard
//   parameters (3)    shard     shard       shard
//
// A shard is an equal share of the flat tensor, padded to a multiple of the replicas.
//
// Where weights are bf16 and states fp32, the master is kept as what the weights lack: 16 bits
// beside the bf16 (ops/split_master.h). Gradients exist from the first backward of a step to the
// end of its update.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/ops/linear.h"
#include "runtime/parallel/collectives.h"
#include "runtime/parallel/site.h"

namespace braid::parallel {

// A run of elements that are treated alike.
struct ElementRun {
  std::int64_t begin = 0, end = 0;
  bool decays = true;              // weight decay applies
  comm::Group* sharing = nullptr;  // other ranks of the stage's tensor axis that hold the
                                   // same elements: their gradients add up
};

class FlatBuffer {
 public:
  FlatBuffer(std::string name, std::vector<ElementRun> runs, Zero zero, GroupPtr replicas,
             const Numerics& numerics);

  std::int64_t elements() const { return elements_; }

  // Whole weights and gradients that exist for a while take turns in the memory of their replicas'
  // group. Told the largest one's elements, all fit into the same pieces of it.
  bool takes_turns() const { return shards_gradients(); }
  std::int64_t padded() const { return padded_; }
  const comm::Group* replicas() const { return replicas_.get(); }
  void set_room(std::int64_t elements) { room_ = elements; }

  // The whole weights; under ZeRO-3 only between wait_weights() and release_weights().
  const at::Tensor& weights() const { return whole_weights_; }
  void start_weights();  // begins the gather, where one is needed and none is under way
  void wait_weights();
  void release_weights();

  // Around a micro-batch's weight gradients, which are added to gradients(): the accumulated whole,
  // or a whole that end_gradients() scatters over the shards.
  void begin_gradients();
  // Elements [begin, end) of it. Nobody has written to them where they are fresh: whoever asks
  // overwrites them.
  ops::Sum gradients(std::int64_t begin, std::int64_t end);
  void end_gradients();
  // Waits for what end_gradients() scatters, and frees it.
  void settle_gradients();

  // After the last micro-batch: begins to sum the gradients over the replicas, beside what is
  // computed next.
  void start_reduction();
  // Ends it, and sums over sharing ranks: owned() elements are complete. Begins it where nobody
  // has.
  void reduce_gradients();
  // Elements this rank's optimizer updates, as parts of the runs.
  const std::vector<ElementRun>& owned() const { return owned_; }
  std::int64_t owned_begin() const { return owned_begin_; }
  // The owned elements that this rank saves: of all ranks that hold an element, one saves it, and
  // each about as many as the others.
  std::vector<Segment> saved_elements() const;
  // The elements whose states this rank has, without padding.
  Segment owned_elements() const;
  // The elements whose weights it stores from step to step: all, or under ZeRO-3 the owned.
  Segment stored_weights() const;
  // Tensors over the owned elements alone.
  at::Tensor owned_gradients() const;
  // In the states' precision: the weights themselves where those have it, else put together.
  at::Tensor owned_master() const;
  void set_owned_master(const at::Tensor& master);
  // The 16 bits that the weights lack; undefined where they lack none.
  const at::Tensor& low_bits() const { return low_bits_; }
  const at::Tensor& first_moment() const { return first_moment_; }
  const at::Tensor& second_moment() const { return second_moment_; }
  // From owned_weights() to all replicas.
  void share_weights();
  at::Tensor owned_weights() const;
  void drop_gradients();
  // Whether this rank's owned elements of a run count towards a norm over all ranks (each element
  // counts once).
  bool counts(const ElementRun& run) const;

  // Overwrites stored weights and owned masters. `values` are those of elements from `first` on, at
  // least the stored ones.
  void initialise(const at::Tensor& values, std::int64_t first = 0);
  // The whole weights in the states' precision, gathered from all replicas. Collective.
  at::Tensor whole_master() const;

  struct Usage {
    std::int64_t weights = 0, gradients = 0, optimizer = 0;
  };
  Usage bytes() const;

 private:
  bool shards_weights() const { return zero_ == Zero::parameters; }
  bool shards_gradients() const { return zero_ == Zero::gradients || shards_weights(); }
  bool shards_states() const { return zero_ != Zero::none; }
  bool splits_master() const;
  void zero_untouched();

  std::string name_;
  std::vector<ElementRun> runs_, owned_;
  Zero zero_;
  GroupPtr replicas_;
  Numerics numerics_;
  std::int64_t elements_ = 0, padded_ = 0, share_ = 0, owned_begin_ = 0, room_ = 0;

  at::Tensor weights_;        // stored: whole or shard
  at::Tensor whole_weights_;  // usable: the whole
  Arriving gathering_;
  at::Tensor gradients_;            // stored: whole or shard
  at::Tensor whole_gradients_;      // of one micro-batch, under ZeRO-2 and 3
  std::vector<Segment> untouched_;  // elements of the whole that hold nothing yet
  Arriving scattering_;             // of a micro-batch
  comm::Handle summing_;
  bool reducing_ = false;
  at::Tensor low_bits_, first_moment_, second_moment_;
};

}  // namespace braid::parallel
