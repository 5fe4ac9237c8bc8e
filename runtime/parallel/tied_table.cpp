#include "runtime/parallel/tied_table.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "runtime/parallel/collectives.h"
#include "runtime/parallel/recorder.h"

namespace braid::parallel {

namespace {

// The ranks of one layer, by the rows of the vocabulary they hold.
struct Holders {
  std::int64_t share = 0, vocab = 0;      // rows of a rank with padding, and of all
  std::vector<std::vector<int>> by_rows;  // devices, by position among the cut

  Segment rows(std::size_t part) const {
    const auto begin = static_cast<std::int64_t>(part) * share;
    return {std::min(vocab, begin), std::min(vocab, begin + share)};
  }
};

Holders holders_of(const Plan& plan, int stage, const Strategy& strategy, std::int64_t vocab) {
  const Mesh mesh = plan.mesh();
  const Mesh alone{mesh.stage_devices(), 1, mesh.order};
  const GroupShape tensor = group_along(alone, strategy, Axis::tensor);
  const int ways = strategy.tensor_split();
  Holders holders{.share = (vocab + ways - 1) / ways, .vocab = vocab, .by_rows = {}};
  holders.by_rows.resize(static_cast<std::size_t>(ways));
  for (int local = 0; local < mesh.stage_devices(); ++local) {
    const int part = ways > 1 ? coordinate(local, tensor) : 0;
    holders.by_rows[static_cast<std::size_t>(part)].push_back(device_at(stage, local, mesh));
  }
  return holders;
}

}  // namespace

TiedTable::TiedTable(const Plan& plan, int device, const Numerics& numerics, comm::Group& world)
    : device_(device), world_(&world) {
  const LayerShape& head_shape = plan.model.type_of(plan.model.num_layers() - 1).shape;
  const int last = plan.shape.stages - 1;
  const Holders embedding =
      holders_of(plan, 0, plan.stages.front().strategies.front(), head_shape.vocab);
  const Holders head =
      holders_of(plan, last, plan.stages.back().strategies.back(), head_shape.vocab);

  // Every head rank is served by one embedding rank for each range of rows, spread over replicas.
  for (std::size_t h = 0; h < head.by_rows.size(); ++h)
    for (std::size_t k = 0; k < head.by_rows[h].size(); ++k) {
      const int head_device = head.by_rows[h][k];
      if (head_device == device_) {
        const at::TensorOptions options =
            at::TensorOptions(numerics.compute).device(numerics.device);
        weight_ = at::zeros({head.share, head_shape.hidden}, options);
        gradient_ = at::zeros({head.share, head_shape.hidden}, options.dtype(numerics.gradient));
      }
      for (std::size_t e = 0; e < embedding.by_rows.size(); ++e) {
        const Segment a = embedding.rows(e), b = head.rows(h);
        const std::int64_t begin = std::max(a.begin, b.begin);
        const std::int64_t rows = std::min(a.end, b.end) - begin;
        if (rows <= 0) continue;
        const int server = embedding.by_rows[e][k % embedding.by_rows[e].size()];
        const Link link{0, begin - a.begin, begin - b.begin, rows};
        if (server == device_) {
          to_head_.push_back(link);
          to_head_.back().peer = head_device;
        }
        if (head_device == device_) {
          to_embedding_.push_back(link);
          to_embedding_.back().peer = server;
        }
      }
    }
}

void TiedTable::attach(Parameters& embedding, Parameters::Id table) {
  embedding_ = &embedding;
  table_ = table;
}

void TiedTable::send_weights() {
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  at::Tensor table;
  if (embedding_ != nullptr) {
    embedding_->wait_weights();
    table = embedding_->weight(table_);
  }
  for (const Link& link : to_head_) {
    const at::Tensor rows = table.narrow(0, link.embedding_row, link.rows);
    if (link.peer == device_) {
      weight_.narrow(0, link.head_row, link.rows).copy_(rows);
    } else {
      out.push_back({buffer_of(rows), link.peer});
    }
  }
  for (const Link& link : to_embedding_)
    if (link.peer != device_)
      in.push_back({buffer_of(weight_.narrow(0, link.head_row, link.rows)), link.peer});
  if (!out.empty() || !in.empty())
    communicate({.kind = CommKind::gather, .operation = "tied weights", .layer = "head"}, [&] {
      return world_->exchange(out, in, "tied weights");
    }).wait();
  if (embedding_ != nullptr) embedding_->release_weights();
}

void TiedTable::send_gradients() {
  std::vector<comm::Outgoing> out;
  std::vector<comm::Incoming> in;
  std::vector<at::Tensor> arriving;
  for (const Link& link : to_embedding_)
    if (link.peer != device_)
      out.push_back({buffer_of(gradient_.narrow(0, link.head_row, link.rows)), link.peer});
  if (embedding_ != nullptr) embedding_->begin_gradients();
  for (const Link& link : to_head_) {
    const at::Tensor target = embedding_->gradient(table_).narrow(0, link.embedding_row, link.rows);
    if (link.peer == device_) {
      arriving.push_back(gradient_.narrow(0, link.head_row, link.rows));
    } else {
      arriving.push_back(at::empty(target.sizes(), target.options()));
      in.push_back({buffer_of(arriving.back()), link.peer});
    }
  }
  if (!out.empty() || !in.empty())
    communicate({.kind = CommKind::reduce, .operation = "tied gradients", .layer = "head"}, [&] {
      return world_->exchange(out, in, "tied gradients");
    }).wait();
  for (std::size_t i = 0; i < to_head_.size(); ++i)
    embedding_->gradient(table_)
        .narrow(0, to_head_[i].embedding_row, to_head_[i].rows)
        .add_(arriving[i]);
  if (embedding_ != nullptr) embedding_->end_gradients();
  if (gradient_.defined()) gradient_.zero_();
}

std::int64_t TiedTable::weight_bytes() const {
  return weight_.defined() ? static_cast<std::int64_t>(weight_.nbytes()) : 0;
}
std::int64_t TiedTable::gradient_bytes() const {
  return gradient_.defined() ? static_cast<std::int64_t>(gradient_.nbytes()) : 0;
}

}  // namespace braid::parallel
