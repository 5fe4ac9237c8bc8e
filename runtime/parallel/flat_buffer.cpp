#include "runtime/parallel/flat_buffer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "planner/core/error.h"
#include "runtime/ops/timed.h"
#include "runtime/parallel/recorder.h"

namespace braid::parallel {

namespace {

std::int64_t last_of(const std::vector<ElementRun>& runs) {
  return runs.empty() ? 0 : runs.back().end;
}

}  // namespace

FlatBuffer::FlatBuffer(std::string name, std::vector<ElementRun> runs, Zero zero, GroupPtr replicas,
                       const Numerics& numerics)
    : name_(std::move(name)),
      runs_(std::move(runs)),
      zero_(replicas->size() > 1 ? zero : Zero::none),
      replicas_(std::move(replicas)),
      numerics_(numerics),
      elements_(last_of(runs_)) {
  const std::int64_t ranks = replicas_->size();
  share_ = shards_states() ? (elements_ + ranks - 1) / ranks : elements_;
  padded_ = shards_states() ? share_ * ranks : elements_;
  owned_begin_ = shards_states() ? replicas_->rank() * share_ : 0;
  for (ElementRun run : runs_) {
    run.begin = std::max(run.begin, owned_begin_);
    run.end = std::min(run.end, owned_begin_ + share_);
    if (run.begin < run.end) owned_.push_back(run);
  }
  const auto made = [&](std::int64_t size, at::ScalarType type) {
    return at::zeros({size}, at::TensorOptions(type).device(numerics_.device));
  };
  weights_ = made(shards_weights() ? share_ : padded_, numerics_.compute);
  if (!shards_weights()) whole_weights_ = weights_;
  gradients_ = made(shards_gradients() ? share_ : padded_, numerics_.gradient);
  if (numerics_.has_master()) master_ = made(share_, numerics_.state);
  first_moment_ = made(share_, numerics_.state);
  second_moment_ = made(share_, numerics_.state);
}

void FlatBuffer::start_weights() {
  if (!shards_weights() || whole_weights_.defined() || gathering_.valid()) return;
  gathering_ = start_all_gather(weights_, *replicas_, "gather " + name_, CommKind::gather, name_);
}

void FlatBuffer::wait_weights() {
  start_weights();
  if (gathering_.valid()) whole_weights_ = gathering_.wait();
}

void FlatBuffer::release_weights() {
  if (shards_weights()) whole_weights_.reset();
}

void FlatBuffer::begin_gradients() {
  if (shards_gradients()) whole_gradients_ = at::zeros({padded_}, gradients_.options());
}

const at::Tensor& FlatBuffer::gradients() const {
  return shards_gradients() ? whole_gradients_ : gradients_;
}

void FlatBuffer::end_gradients() {
  if (!shards_gradients()) return;
  settle_gradients();
  scattering_ = start_reduce_scatter(whole_gradients_, *replicas_, "scatter " + name_,
                                     CommKind::reduce, name_);
  whole_gradients_.reset();
}

void FlatBuffer::settle_gradients() {
  if (shards_gradients() && scattering_.valid()) gradients_.add_(scattering_.wait());
}

void FlatBuffer::start_reduction() {
  if (reducing_) return;
  reducing_ = true;
  if (zero_ == Zero::none && replicas_->size() > 1) {
    const std::string operation = "reduce " + name_;
    summing_ = communicate({.kind = CommKind::reduce, .operation = operation, .layer = name_}, [&] {
      return replicas_->all_reduce(buffer_of(gradients_), comm::Reduction::sum, operation);
    });
  } else if (zero_ == Zero::optimizer) {
    // In place: shares of all layers wait for the end of the step.
    const std::string operation = "reduce " + name_;
    const at::Tensor mine = gradients_.narrow(0, owned_begin_, share_);
    summing_ = communicate({.kind = CommKind::reduce, .operation = operation, .layer = name_}, [&] {
      return replicas_->reduce_scatter(buffer_of(gradients_), buffer_of(mine), comm::Reduction::sum,
                                       operation);
    });
  }
}

void FlatBuffer::reduce_gradients() {
  start_reduction();
  reducing_ = false;
  summing_.wait();
  settle_gradients();
  // Sharing ranks own the same elements, so each sums what it owns.
  for (const ElementRun& run : owned_)
    if (run.sharing != nullptr && run.sharing->size() > 1)
      all_reduce(owned_gradients().narrow(0, run.begin - owned_begin_, run.end - run.begin),
                 *run.sharing, "share " + name_, comm::Reduction::sum, CommKind::reduce);
}

at::Tensor FlatBuffer::owned_gradients() const {
  return shards_gradients() ? gradients_ : gradients_.narrow(0, owned_begin_, share_);
}

at::Tensor FlatBuffer::owned_master() const {
  return numerics_.has_master() ? master_ : owned_weights();
}

at::Tensor FlatBuffer::owned_weights() const {
  return shards_weights() ? weights_ : weights_.narrow(0, owned_begin_, share_);
}

void FlatBuffer::publish() {
  if (numerics_.has_master()) {
    const ops::Timed timed("copy of the weights");
    owned_weights().copy_(master_);
  }
  share_weights();
}

void FlatBuffer::share_weights() {
  if (!shards_weights() && shards_states()) {
    const at::Tensor mine = weights_.narrow(0, owned_begin_, share_);
    const std::string operation = "publish " + name_;
    communicate({.kind = CommKind::gather, .operation = operation, .layer = name_}, [&] {
      return replicas_->all_gather(buffer_of(mine), buffer_of(weights_), operation);
    }).wait();
  }
}

void FlatBuffer::zero_gradients() {
  const ops::Timed timed("gradients to zero");
  gradients_.zero_();
}

bool FlatBuffer::counts(const ElementRun& run) const {
  const bool first_sharing = run.sharing == nullptr || run.sharing->rank() == 0;
  return first_sharing && (shards_states() || replicas_->rank() == 0);
}

void FlatBuffer::initialise(const at::Tensor& whole) {
  internal_check(whole.numel() == elements_, "initial values fill the buffer");
  const std::int64_t length = std::max<std::int64_t>(0, std::min(share_, elements_ - owned_begin_));
  if (length > 0) {
    const at::Tensor mine = whole.narrow(0, owned_begin_, length);
    if (numerics_.has_master()) master_.narrow(0, 0, length).copy_(mine);
    if (shards_weights()) weights_.narrow(0, 0, length).copy_(mine);
  }
  if (!shards_weights()) weights_.narrow(0, 0, elements_).copy_(whole);
}

at::Tensor FlatBuffer::whole_master() const {
  at::Tensor mine = owned_master();
  if (!shards_states()) return mine;
  return all_gather(mine, *replicas_, "collect " + name_).narrow(0, 0, elements_);
}

FlatBuffer::Usage FlatBuffer::bytes() const {
  const auto size = [](const at::Tensor& t) {
    return t.defined() ? static_cast<std::int64_t>(t.nbytes()) : 0;
  };
  return {.weights = size(weights_),
          .gradients = size(gradients_),
          .optimizer = size(master_) + size(first_moment_) + size(second_moment_)};
}

}  // namespace braid::parallel
