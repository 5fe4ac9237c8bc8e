#include "runtime/models/shared_bias.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "runtime/parallel/collectives.h"
#include "runtime/parallel/recorder.h"

namespace braid::models {

SharedBias::SharedBias(const Plan& plan, int device, const parallel::Numerics& numerics,
                       comm::Group& world)
    : world_(&world), numerics_(numerics) {
  const Mesh mesh = plan.mesh();
  const int place = parallel::local_rank(device, mesh);
  source_ = parallel::device_at(0, place, mesh);
  for (int stage = 1; device == source_ && stage < mesh.stages; ++stage)
    followers_.push_back(parallel::device_at(stage, place, mesh));
  const LayerShape& embedding = plan.model.type_of(0).shape;
  shape_ = {embedding.position_bias, embedding.heads};
}

void SharedBias::attach(parallel::Parameters& embedding, parallel::Parameters::Id tables) {
  embedding_ = &embedding;
  tables_ = tables;
}

void SharedBias::add_block(RelativeBias& copy, bool of_decoder) {
  copies_.push_back({&copy, of_decoder});
}

at::Tensor SharedBias::half(const at::Tensor& tables, const Copy& copy) const {
  const std::int64_t rows = shape_[0] / 2;
  return tables.narrow(0, copy.of_decoder ? rows : 0, rows);
}

void SharedBias::send_weights() {
  at::Tensor tables;
  if (embedding_ != nullptr) {
    embedding_->wait_weights();
    tables = embedding_->fused_weight(tables_, 2);
  } else {
    tables = at::empty(shape_, at::TensorOptions(numerics_.compute).device(numerics_.device));
  }
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  out.reserve(followers_.size());
  for (const int peer : followers_) out.push_back({parallel::buffer_of(tables), peer});
  if (embedding_ == nullptr) in.push_back({parallel::buffer_of(tables), source_});
  if (!out.empty() || !in.empty())
    parallel::communicate(
        {.kind = CommKind::gather, .operation = "shared bias", .layer = "embedding"},
        [&] { return world_->exchange(out, in, "shared bias"); })
        .wait();
  for (const Copy& copy : copies_) copy.bias->weight.copy_(half(tables, copy));
  if (embedding_ != nullptr) embedding_->release_weights();
}

void SharedBias::send_gradients() {
  const at::TensorOptions options = at::TensorOptions(numerics_.gradient).device(numerics_.device);
  at::Tensor sum = at::zeros(shape_, options);
  for (const Copy& copy : copies_) {
    half(sum, copy).add_(copy.bias->gradient);
    copy.bias->gradient.zero_();
  }
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  std::vector<at::Tensor> arriving;
  if (embedding_ == nullptr) out.push_back({parallel::buffer_of(sum), source_});
  for (const int peer : followers_) {
    arriving.push_back(at::empty(shape_, options));
    in.push_back({parallel::buffer_of(arriving.back()), peer});
  }
  if (!out.empty() || !in.empty())
    parallel::communicate(
        {.kind = CommKind::reduce, .operation = "shared bias gradient", .layer = "embedding"},
        [&] { return world_->exchange(out, in, "shared bias gradient"); })
        .wait();
  if (embedding_ == nullptr) return;
  embedding_->begin_gradients();
  const at::Tensor target = embedding_->fused_gradient(tables_, 2);
  target.add_(sum);
  for (const at::Tensor& one : arriving) target.add_(one);
  embedding_->end_gradients();
}

std::int64_t SharedBias::weight_bytes() const {
  std::int64_t total = 0;
  for (const Copy& copy : copies_) total += static_cast<std::int64_t>(copy.bias->weight.nbytes());
  return total;
}

std::int64_t SharedBias::gradient_bytes() const {
  std::int64_t total = 0;
  for (const Copy& copy : copies_) total += static_cast<std::int64_t>(copy.bias->gradient.nbytes());
  return total;
}

}  // namespace braid::models
