#pragma once
// The gradients of a step, whole, from the pieces that ranks own just before the update.

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <string>

#include "runtime/models/model.h"

namespace braid::models {

struct WholeGradient {
  int layer = 0;
  parallel::ParameterSpec spec;
  at::Tensor value;  // NaN where no rank has brought it yet
};

// Filled by all ranks of a process.
class GradientCollector {
 public:
  // As one rank, from WorkerOptions::before_update.
  void add(RankModel& model) {
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = 0; i < model.layers.size(); ++i)
      add(model.layers[i]->parameters(), model.indices[i]);
  }

  const std::map<std::string, WholeGradient>& gradients() const { return gradients_; }
  // The most by which two ranks that own the same element differ.
  double disagreement() const { return disagreement_; }

 private:
  // This rank's flat gradients, NaN where another replica owns them.
  static at::Tensor flat(const parallel::FlatBuffer& buffer) {
    const at::Tensor owned = buffer.owned_gradients();
    at::Tensor all = at::full({buffer.elements()}, NAN, owned.options());
    for (const parallel::ElementRun& run : buffer.owned())
      all.slice(0, run.begin, run.end)
          .copy_(owned.slice(0, run.begin - buffer.owned_begin(), run.end - buffer.owned_begin()));
    return all;
  }

  void add(parallel::Parameters& parameters, int layer) {
    std::vector<at::Tensor> buffers;
    for (const parallel::FlatBuffer* buffer : parameters.buffers())
      buffers.push_back(flat(*buffer));
    std::vector<std::int64_t> position(buffers.size(), 0);
    for (std::size_t i = 0; i < parameters.specs().size(); ++i) {
      const auto id = static_cast<parallel::Parameters::Id>(i);
      const parallel::ParameterSpec& spec = parameters.specs()[i];
      const parallel::LocalShape& local = parameters.local(id);
      const std::size_t b = spec.expert < 0 ? 0 : 1;  // experts have a buffer of their own
      const std::int64_t elements = std::accumulate(local.shape.begin(), local.shape.end(),
                                                    std::int64_t{1}, std::multiplies<>());
      const at::Tensor mine = buffers[b]
                                  .narrow(0, position[b], elements)
                                  .view(local.shape)
                                  .narrow(spec.cut_dim, 0, local.real);
      position[b] += elements;
      WholeGradient& whole = gradients_[parameters.full_name(id)];
      if (!whole.value.defined()) whole = {layer, spec, at::full(spec.shape, NAN, mine.options())};
      merge(parallel::local_slice(spec, local, whole.value), mine);
    }
  }

  void merge(const at::Tensor& known, const at::Tensor& mine) {
    const at::Tensor apart = known.sub(mine).abs().nan_to_num(0);
    if (apart.numel() > 0) disagreement_ = std::max(disagreement_, apart.max().item().toDouble());
    known.copy_(known.where(mine.isnan(), mine));
  }

  std::mutex mutex_;
  std::map<std::string, WholeGradient> gradients_;
  double disagreement_ = 0;
};

}  // namespace braid::models
