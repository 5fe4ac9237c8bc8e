#include "runtime/parallel/flat_buffer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "planner/core/error.h"
#include "runtime/ops/split_master.h"
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
  if (shards_weights()) {
    weights_ = made(share_, numerics_.compute);
  } else {
    const auto options = at::TensorOptions(numerics_.compute).device(numerics_.device);
    weights_ = shards_states() ? empty_for(*replicas_, {padded_}, options).zero_()
                               : made(padded_, numerics_.compute);
    whole_weights_ = weights_;
  }
  if (splits_master()) low_bits_ = made(share_, at::kShort);
  first_moment_ = made(share_, numerics_.state);
  second_moment_ = made(share_, numerics_.state);
}

void FlatBuffer::start_weights() {
  if (!shards_weights() || whole_weights_.defined() || gathering_.valid()) return;
  gathering_ =
      start_all_gather(weights_, empty_for(*replicas_, {padded_}, weights_.options(), room_),
                       *replicas_, "gather " + name_, CommKind::gather, name_);
}

void FlatBuffer::wait_weights() {
  start_weights();
  if (gathering_.valid()) whole_weights_ = gathering_.wait();
}

void FlatBuffer::release_weights() {
  if (shards_weights()) whole_weights_.reset();
}

bool FlatBuffer::splits_master() const {
  internal_check(!numerics_.has_master() ||
                     (numerics_.compute == at::kBFloat16 && numerics_.state == at::kFloat),
                 "a master is fp32 beside bf16");
  return numerics_.has_master();
}

void FlatBuffer::begin_gradients() {
  at::Tensor& whole = shards_gradients() ? whole_gradients_ : gradients_;
  if (!shards_gradients() && whole.defined()) return;
  untouched_ = {{0, padded_}};
  whole = empty_for(*replicas_, {padded_},
                    at::TensorOptions(numerics_.gradient).device(numerics_.device),
                    shards_gradients() ? room_ : 0);
}

ops::Sum FlatBuffer::gradients(std::int64_t begin, std::int64_t end) {
  const at::Tensor& whole = shards_gradients() ? whole_gradients_ : gradients_;
  const at::Tensor asked = whole.narrow(0, begin, end - begin);
  std::vector<Segment> left;
  std::int64_t fresh = 0;
  for (const Segment& run : untouched_) {
    const Segment inside{std::max(run.begin, begin), std::min(run.end, end)};
    if (inside.begin >= inside.end) {
      left.push_back(run);
      continue;
    }
    fresh += inside.end - inside.begin;
    if (run.begin < begin) left.push_back({run.begin, begin});
    if (run.end > end) left.push_back({end, run.end});
    // Asked for together with others that hold something already.
    if (inside.end - inside.begin < end - begin)
      whole.narrow(0, inside.begin, inside.end - inside.begin).zero_();
  }
  untouched_ = std::move(left);
  return {asked, fresh > 0 && fresh == end - begin};
}

void FlatBuffer::zero_untouched() {
  const at::Tensor& whole = shards_gradients() ? whole_gradients_ : gradients_;
  for (const Segment& run : untouched_) whole.narrow(0, run.begin, run.end - run.begin).zero_();
  untouched_.clear();
}

void FlatBuffer::end_gradients() {
  if (!shards_gradients()) return;
  zero_untouched();
  settle_gradients();
  scattering_ = start_reduce_scatter(whole_gradients_, *replicas_, "scatter " + name_,
                                     CommKind::reduce, name_);
  whole_gradients_.reset();
}

void FlatBuffer::settle_gradients() {
  if (!shards_gradients() || !scattering_.valid()) return;
  const at::Tensor arrived = scattering_.wait();
  if (gradients_.defined())
    gradients_.add_(arrived);
  else
    gradients_ = arrived;
}

void FlatBuffer::start_reduction() {
  if (reducing_) return;
  reducing_ = true;
  if (!shards_gradients()) {
    begin_gradients();  // where no micro-batch has
    zero_untouched();
  }
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

std::vector<Segment> FlatBuffer::saved_elements() const {
  // The i-th of n equal parts of a run.
  const auto share = [](Segment run, std::int64_t i, std::int64_t n) {
    return Segment{run.begin + run.size() * i / n, run.begin + run.size() * (i + 1) / n};
  };
  Segment mine{0, elements_};
  if (!shards_states()) mine = share(mine, replicas_->rank(), replicas_->size());
  std::vector<Segment> saved;
  for (const ElementRun& run : owned_) {
    Segment part{std::max(run.begin, mine.begin), std::min(run.end, mine.end)};
    if (part.begin >= part.end) continue;
    if (run.sharing != nullptr) part = share(part, run.sharing->rank(), run.sharing->size());
    if (part.begin >= part.end) continue;
    if (!saved.empty() && saved.back().end == part.begin)
      saved.back().end = part.end;
    else
      saved.push_back(part);
  }
  return saved;
}

Segment FlatBuffer::owned_elements() const {
  return {std::min(elements_, owned_begin_), std::min(elements_, owned_begin_ + share_)};
}

Segment FlatBuffer::stored_weights() const {
  return shards_weights() ? owned_elements() : Segment{0, elements_};
}

at::Tensor FlatBuffer::owned_gradients() const {
  return shards_gradients() ? gradients_ : gradients_.narrow(0, owned_begin_, share_);
}

at::Tensor FlatBuffer::owned_master() const {
  return splits_master() ? ops::join_master(owned_weights(), low_bits_) : owned_weights();
}

void FlatBuffer::set_owned_master(const at::Tensor& master) {
  if (splits_master())
    ops::split_master(master, owned_weights(), low_bits_);
  else
    owned_weights().copy_(master);
}

at::Tensor FlatBuffer::owned_weights() const {
  return shards_weights() ? weights_ : weights_.narrow(0, owned_begin_, share_);
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

void FlatBuffer::drop_gradients() {
  gradients_.reset();
  reducing_ = false;
}

bool FlatBuffer::counts(const ElementRun& run) const {
  const bool first_sharing = run.sharing == nullptr || run.sharing->rank() == 0;
  return first_sharing && (shards_states() || replicas_->rank() == 0);
}

void FlatBuffer::initialise(const at::Tensor& values, std::int64_t first) {
  const Segment stored = stored_weights();
  internal_check(first <= stored.begin && first + values.numel() >= stored.end,
                 "initial values cover what is stored");
  // Some elements at a time: a step must not need less memory than its beginning.
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 22;
  const std::int64_t first_stored = shards_weights() ? owned_begin_ : 0;
  const Segment owned = owned_elements();
  for (std::int64_t begin = stored.begin; begin < stored.end; begin += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, stored.end - begin);
    const at::Tensor part = values.narrow(0, begin - first, count).to(numerics_.device);
    const at::Tensor weights = weights_.narrow(0, begin - first_stored, count);
    if (!splits_master()) {
      weights.copy_(part);
      continue;
    }
    const at::Tensor low = at::empty({count}, low_bits_.options());
    ops::split_master(part, weights, low);
    const Segment mine{std::max(begin, owned.begin), std::min(begin + count, owned.end)};
    if (mine.begin < mine.end)
      low_bits_.narrow(0, mine.begin - owned_begin_, mine.size())
          .copy_(low.narrow(0, mine.begin - begin, mine.size()));
  }
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
  const std::int64_t gradients = shards_gradients() ? share_ : padded_;
  return {.weights = size(weights_),
          .gradients = gradients * static_cast<std::int64_t>(c10::elementSize(numerics_.gradient)),
          .optimizer = size(low_bits_) + size(first_moment_) + size(second_moment_)};
}

}  // namespace braid::parallel
