#include "runtime/parallel/parameters.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <fmt/core.h>

#include <numeric>

#include "planner/core/error.h"
#include "runtime/ops/random.h"

namespace braid::parallel {

namespace {

std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// The ranks of the tensor group that hold the same elements as this one; none: nobody else.
comm::Group* sharing_group(const ParameterSpec& spec, const Site& site) {
  if (site.in_square()) {
    if (spec.cut == CutBy::nothing) return site.tensor.get();
    if (spec.cut == CutBy::hidden) return site.same_diagonal.get();
    return spec.shape.size() == 1 ? site.same_column.get() : nullptr;
  }
  if (!site.megatron()) return nullptr;
  if (spec.cut == CutBy::nothing || spec.cut == CutBy::hidden) return site.tensor.get();
  if (spec.cut == CutBy::kv_heads && site.same_kv->size() > 1) return site.same_kv.get();
  return nullptr;
}

// Appends a run, or lengthens the last one where it is of the same kind.
void append(std::vector<ElementRun>& runs, ElementRun run) {
  if (!runs.empty() && runs.back().end == run.begin && runs.back().decays == run.decays &&
      runs.back().sharing == run.sharing) {
    runs.back().end = run.end;
  } else {
    runs.push_back(run);
  }
}

// Fills a slice with normal values, each a function of key and position in the whole tensor. Row by
// row in chunks, so that the indices need little memory.
void fill_normal(const at::Tensor& slice, std::uint64_t key, const ParameterSpec& spec,
                 const LocalShape& local) {
  const std::int64_t rows = slice.size(0);
  const std::int64_t columns = slice.numel() / std::max<std::int64_t>(1, rows);
  const std::int64_t whole_columns = product(spec.shape) / spec.shape[0];
  const std::int64_t first_row = spec.cut_dim == 0 ? local.begin : local.across;
  // Along dim 1 the slice begins `begin` of its rows' elements further on.
  const std::int64_t inner =
      spec.shape.size() > 1 ? whole_columns / spec.shape[1] : std::int64_t{1};
  const std::int64_t first_column = (spec.cut_dim == 1 ? local.begin : local.across) * inner;
  const at::TensorOptions index = at::TensorOptions(at::kLong).device(slice.device());
  constexpr std::int64_t kChunk = 1 << 21;
  const std::int64_t rows_at_once =
      std::max<std::int64_t>(1, kChunk / std::max<std::int64_t>(1, columns));
  const at::Tensor column = at::arange(first_column, first_column + columns, index);
  for (std::int64_t begin = 0; begin < rows; begin += rows_at_once) {
    const std::int64_t count = std::min(rows_at_once, rows - begin);
    const at::Tensor row = at::arange(first_row + begin, first_row + begin + count, index);
    const at::Tensor indices = row.unsqueeze(1).mul(whole_columns).add(column);
    const at::Tensor part = slice.narrow(0, begin, count);
    part.copy_(ops::normal_at(key, indices).mul_(spec.deviation).view(part.sizes()));
  }
  const std::int64_t zero_row = spec.zero_row - first_row;
  if (spec.zero_row >= 0 && zero_row >= 0 && zero_row < rows) slice.select(0, zero_row).zero_();
}

// A rank's block of a matrix: its heads or columns along the cut dim, its diagonal along the other.
// Published squares hold every matrix as if its cut dim were the first.
LocalShape square_block(const ParameterSpec& spec, const Site& site) {
  const auto cut = static_cast<std::size_t>(spec.cut_dim);
  const std::size_t other = 1 - cut;
  LocalShape local{.shape = spec.shape};
  local.shape[cut] /= site.tensor_split();
  local.shape[other] /= site.strategy.hidden_split();
  const bool swapped = site.as_published() && cut == 1;
  local.begin = (swapped ? site.diagonal() : site.split_rank()) * local.shape[cut];
  local.across = (swapped ? site.column : site.diagonal()) * local.shape[other];
  local.real = local.shape[cut];
  return local;
}

}  // namespace

LocalShape local_shape(const ParameterSpec& spec, const Site& site) {
  LocalShape local{.shape = spec.shape};
  std::int64_t& length = local.shape[static_cast<std::size_t>(spec.cut_dim)];
  const std::int64_t whole = length;
  const std::int64_t ways = site.tensor_split();
  const std::int64_t rank = site.split_rank();
  if (site.in_square() && spec.shape.size() == 2) return square_block(spec, site);
  switch (spec.cut) {
    case CutBy::nothing:
      break;
    case CutBy::hidden:
      length = whole / site.strategy.hidden_split();
      local.begin = site.diagonal() * length;
      break;
    case CutBy::tensor:
      internal_check(whole % ways == 0, "a legal plan divides what it cuts");
      length = whole / ways;
      local.begin = rank * length;
      break;
    case CutBy::kv_heads: {
      const std::int64_t pieces = std::min(ways, site.shape.kv_heads);
      length = whole / pieces;
      local.begin = rank * pieces / ways * length;
      break;
    }
    case CutBy::vocabulary:
      length = (whole + ways - 1) / ways;
      local.begin = std::min(whole, rank * length);
      break;
  }
  local.real = std::min(length, whole - local.begin);
  return local;
}

at::Tensor local_slice(const ParameterSpec& spec, const LocalShape& local,
                       const at::Tensor& whole) {
  at::Tensor cut = whole.narrow(spec.cut_dim, local.begin, local.real);
  if (whole.dim() != 2) return cut;
  const std::int64_t other = 1 - spec.cut_dim;
  return cut.narrow(other, local.across, local.shape[static_cast<std::size_t>(other)]);
}

Parameters::Id Parameters::Declare::add(ParameterSpec spec) {
  specs_.push_back(std::move(spec));
  return static_cast<Id>(specs_.size()) - 1;
}

std::unique_ptr<Parameters> Parameters::Declare::make(const std::string& layer_name) {
  return std::make_unique<Parameters>(layer_name, std::move(specs_), *site_);
}

Parameters::Parameters(const std::string& layer_name, std::vector<ParameterSpec> specs,
                       const Site& site)
    : layer_name_(layer_name), specs_(std::move(specs)), numerics_(site.numerics) {
  std::vector<ElementRun> dense, experts;
  for (const ParameterSpec& spec : specs_) {
    std::vector<ElementRun>& runs = spec.expert < 0 ? dense : experts;
    Slot slot{.local = local_shape(spec, site)};
    slot.begin = runs.empty() ? 0 : runs.back().end;
    slot.elements = product(slot.local.shape);
    append(runs, {slot.begin, slot.begin + slot.elements, spec.decays, sharing_group(spec, site)});
    slots_.push_back(slot);
  }
  dense_ = std::make_unique<FlatBuffer>(layer_name_, std::move(dense), site.strategy.zero,
                                        site.replicas, numerics_);
  if (!experts.empty())
    experts_ = std::make_unique<FlatBuffer>(layer_name_ + " experts", std::move(experts),
                                            site.strategy.zero, site.expert_replicas, numerics_);
  for (std::size_t i = 0; i < slots_.size(); ++i)
    slots_[i].buffer = specs_[i].expert < 0 ? dense_.get() : experts_.get();
}

at::Tensor Parameters::weight(Id id) const { return fused_weight(id, 1); }

// Rows of neighbours in the flat tensor, as one matrix (or one vector of biases).
Parameters::Neighbours Parameters::neighbours(Id first, int count) const {
  const Slot& begin = slots_[static_cast<std::size_t>(first)];
  Neighbours all{begin.buffer, begin.begin, begin.begin, begin.local.shape};
  all.shape[0] = 0;
  for (int i = first; i < first + count; ++i) {
    const Slot& slot = slots_[static_cast<std::size_t>(i)];
    internal_check(slot.begin == all.end, "fused parameters are neighbours");
    all.end += slot.elements;
    all.shape[0] += slot.local.shape[0];
  }
  return all;
}

at::Tensor Parameters::fused_weight(Id first, int count) const {
  const Neighbours all = neighbours(first, count);
  return all.buffer->weights().narrow(0, all.begin, all.end - all.begin).view(all.shape);
}

ops::Sum Parameters::fused_gradient_sum(Id first, int count) {
  const Neighbours all = neighbours(first, count);
  const ops::Sum flat = all.buffer->gradients(all.begin, all.end);
  return {flat.value.view(all.shape), flat.fresh};
}

at::Tensor Parameters::fused_gradient(Id first, int count) {
  const ops::Sum sum = fused_gradient_sum(first, count);
  if (sum.fresh) sum.value.zero_();
  return sum.value;
}

void Parameters::start_weights() {
  for (FlatBuffer* buffer : buffers()) buffer->start_weights();
}
void Parameters::wait_weights() {
  for (FlatBuffer* buffer : buffers()) buffer->wait_weights();
}
void Parameters::release_weights() {
  for (FlatBuffer* buffer : buffers()) buffer->release_weights();
}
void Parameters::begin_gradients() {
  for (FlatBuffer* buffer : buffers()) buffer->begin_gradients();
}
void Parameters::settle_gradients() {
  for (FlatBuffer* buffer : buffers()) buffer->settle_gradients();
}
void Parameters::end_gradients() {
  for (FlatBuffer* buffer : buffers()) buffer->end_gradients();
}

void Parameters::fill(const std::function<at::Tensor(Id)>& values) {
  write([&](Id id, const at::Tensor& slice) { slice.copy_(values(id)); });
}

void Parameters::write(const std::function<void(Id, const at::Tensor&)>& values) {
  if (numerics_.device.is_meta()) return;
  for (FlatBuffer* buffer : buffers()) {
    const at::Tensor whole = at::zeros({buffer->elements()},
                                       at::TensorOptions(numerics_.state).device(numerics_.device));
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = slots_[i];
      if (slot.buffer != buffer) continue;
      values(static_cast<Id>(i), whole.narrow(0, slot.begin, slot.elements)
                                     .view(slot.local.shape)
                                     .narrow(specs_[i].cut_dim, 0, slot.local.real));
    }
    buffer->initialise(whole);
  }
}

void Parameters::initialise(std::uint64_t seed) {
  write([&](Id id, const at::Tensor& slice) {
    const ParameterSpec& spec = specs_[static_cast<std::size_t>(id)];
    switch (spec.init) {
      case Init::zeros:
        slice.zero_();
        return;
      case Init::ones:
        slice.fill_(1);
        return;
      case Init::normal:
        fill_normal(slice, ops::random_key(seed, full_name(id)), spec, local(id));
        return;
    }
    internal_failure("unknown initialisation", std::source_location::current());
  });
}

std::vector<at::Tensor> Parameters::local_values() const {
  std::vector<at::Tensor> values(slots_.size());
  for (const FlatBuffer* buffer : {dense_.get(), experts_.get()}) {
    if (buffer == nullptr) continue;
    const at::Tensor whole = buffer->whole_master();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = slots_[i];
      if (slot.buffer != buffer) continue;
      values[i] = whole.narrow(0, slot.begin, slot.elements)
                      .view(slot.local.shape)
                      .narrow(specs_[i].cut_dim, 0, slot.local.real);
    }
  }
  return values;
}

std::vector<FlatBuffer*> Parameters::buffers() {
  if (experts_) return {dense_.get(), experts_.get()};
  return {dense_.get()};
}

Parameters::Place Parameters::place(Id id) const {
  const Slot& slot = slots_[static_cast<std::size_t>(id)];
  return {slot.buffer, slot.begin, slot.begin + slot.elements};
}

std::string Parameters::full_name(Id id) const {
  return fmt::format("{}.{}", layer_name_, specs_[static_cast<std::size_t>(id)].name);
}

FlatBuffer::Usage Parameters::bytes() const {
  FlatBuffer::Usage total = dense_->bytes();
  if (experts_) {
    const FlatBuffer::Usage more = experts_->bytes();
    total.weights += more.weights;
    total.gradients += more.gradients;
    total.optimizer += more.optimizer;
  }
  return total;
}

}  // namespace braid::parallel
