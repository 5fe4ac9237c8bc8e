#pragma once
// One layer on one rank: forward, input gradient and weight gradient written out, and everything
// that stays between them named.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/parallel/parameters.h"
#include "runtime/parallel/site.h"

namespace braid::parallel {

// What a layer keeps from forward to backward, for one micro-batch. Slots are the layer's own.
class Saved {
 public:
  void keep(int slot, const at::Tensor& tensor);
  const at::Tensor& at(int slot) const;
  bool has(int slot) const;
  void drop(int slot, int count = 1);
  // Bytes of memory that would be freed, shared storage counted once.
  std::int64_t bytes() const;

  std::vector<std::int64_t> counts;  // numbers that live on the host

 private:
  std::vector<at::Tensor> slots_;
};

// Weight gradients, made when they come or at their turn.
class WeightWork {
 public:
  WeightWork() = default;  // keeps what comes until run()
  // Work that comes is done at once, and what it holds is free again.
  static WeightWork at_once() { return WeightWork(When::at_once); }
  // Work is done while the next communication is under way, so that compute need not wait for it.
  static WeightWork beside_communication() { return WeightWork(When::beside_communication); }

  // Whether it keeps what comes for another pass.
  bool waits() const { return when_ == When::told; }
  // Rows whose sum is a gradient, for work to come: where that waits, the sum, unless the rows stay
  // anyhow as what a product has `kept`.
  at::Tensor rows(const at::Tensor& rows, const at::Tensor& kept = {}) const;
  // `prepare` begins what the work needs from other ranks: ahead of it, beside other work.
  void later(std::function<void()> work, std::function<void()> prepare = {});
  // Called where communication has begun and nothing else can be computed.
  void run_beside() {
    if (when_ == When::beside_communication) run();
  }
  void run();  // what waits, in the order of adding; then it is empty

 private:
  enum class When { told, beside_communication, at_once };
  struct Item {
    std::function<void()> work, prepare;
    bool rounds = false;  // to 8 bits, as where it came from
  };
  explicit WeightWork(When when) : when_(when) {}

  When when_ = When::told;
  std::vector<Item> items_;
};

// The stream beside the one that a layer works on (runtime/parallel/streams.h). An
// encoder-decoder's embedding makes it and takes its gradient back; the decoder's blocks look at it
// and add to its gradient, which is not there before the first of them.
struct Side {
  at::Tensor value, gradient;
};

// What enters from outside, for one micro-batch.
struct Feed {
  at::Tensor ids;          // embedding: its tokens' ids [tokens, samples]
  at::Tensor decoder_ids;  // those of the decoder's tokens, where it makes them too
  Side* side = nullptr;
  at::Tensor patches;          // embedding: its tokens' patches [narrow tokens, samples, values]
  at::Tensor labels;           // head: [tokens, samples], or [1, samples] of a classifier
  at::Tensor lengths;          // where samples are padded: tokens that are not [samples]
  double loss_scale = 1;       // of every token's loss
  std::int64_t sample = 0;     // number of the rank's first sample, over the whole training
  std::uint64_t step_key = 0;  // of this step's random numbers
};

class Layer {
 public:
  Layer(std::string name, Site site) : name_(std::move(name)), site_(std::move(site)) {}
  virtual ~Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  // Weights are there while these run.
  virtual at::Tensor forward(const at::Tensor& x, const Feed& feed, Saved& saved) = 0;
  // The input's gradient; what the weights' needs goes to `work`.
  virtual at::Tensor backward(const at::Tensor& dy, const Feed& feed, Saved& saved,
                              WeightWork& work) = 0;
  // Whether forward itself adds to weight gradients (a head that fuses its loss).
  virtual bool gradients_in_forward() const { return false; }
  // Whether another layer adds to this one's gradients after its last backward (a tied table).
  bool shares_gradients = false;

  const std::string& name() const { return name_; }
  const Site& site() const { return site_; }
  Parameters& parameters() { return *parameters_; }
  const Parameters& parameters() const { return *parameters_; }

 protected:
  // At the end of a constructor, when all parameters have been declared.
  void own(std::unique_ptr<Parameters> parameters) { parameters_ = std::move(parameters); }

 private:
  std::string name_;
  Site site_;
  std::unique_ptr<Parameters> parameters_;
};

}  // namespace braid::parallel
