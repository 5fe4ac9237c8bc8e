#include "runtime/parallel/redistribute.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>

#include "planner/core/error.h"
#include "runtime/parallel/collectives.h"
#include "runtime/parallel/recorder.h"

namespace braid::parallel {

namespace {

using Segments = std::vector<std::vector<Segment>>;  // by dim

Segments held_by(const Layout& layout, const std::vector<std::int64_t>& extents, int rank) {
  Segments held;
  held.reserve(extents.size());
  for (std::size_t d = 0; d < extents.size(); ++d)
    held.push_back(segments(layout.dims[d], extents[d], rank));
  return held;
}

std::vector<int> summand(const Layout& layout, int rank) {
  std::vector<int> coordinates;
  coordinates.reserve(layout.partial.size());
  for (const GroupShape& axis : layout.partial) coordinates.push_back(coordinate(rank, axis));
  return coordinates;
}

// Who sends to each rank: of the ranks that hold the same thing, itself where it is one of them,
// else one that differs from rank to rank.
std::vector<std::vector<int>> senders(const Layout& from, const std::vector<std::int64_t>& extents,
                                      int ranks) {
  std::map<std::pair<Segments, std::vector<int>>, std::vector<int>> holders;
  for (int rank = 0; rank < ranks; ++rank)
    holders[{held_by(from, extents, rank), summand(from, rank)}].push_back(rank);
  std::vector<std::vector<int>> chosen(static_cast<std::size_t>(ranks));
  for (const auto& [key, same] : holders)
    for (int rank = 0; rank < ranks; ++rank) {
      const bool own = std::ranges::find(same, rank) != same.end();
      const int sender = own ? rank : same[static_cast<std::size_t>(rank) % same.size()];
      chosen[static_cast<std::size_t>(rank)].push_back(sender);
    }
  for (std::vector<int>& list : chosen) std::ranges::sort(list);
  return chosen;
}

struct Overlap {
  std::int64_t mine = 0;  // local index in the list asked
  std::int64_t length = 0;
};

// Where two lists of one dim meet, in the order of the indices: the same for both sides.
std::vector<Overlap> overlaps(const std::vector<Segment>& mine,
                              const std::vector<Segment>& theirs) {
  std::vector<std::pair<std::int64_t, Overlap>> found;
  std::int64_t position = 0;
  for (const Segment& a : mine) {
    for (const Segment& b : theirs) {
      const std::int64_t begin = std::max(a.begin, b.begin);
      const std::int64_t end = std::min(a.end, b.end);
      if (begin < end) found.push_back({begin, {position + begin - a.begin, end - begin}});
    }
    position += a.size();
  }
  std::ranges::sort(found, {}, [](const auto& entry) { return entry.first; });
  std::vector<Overlap> ordered;
  ordered.reserve(found.size());
  for (const auto& entry : found) ordered.push_back(entry.second);
  return ordered;
}

std::int64_t length_of(const std::vector<Segment>& list) {
  std::int64_t length = 0;
  for (const Segment& s : list) length += s.size();
  return length;
}

template <class Box>
at::Tensor view_of(const at::Tensor& x, const Box& box) {
  at::Tensor view = x;
  for (std::size_t d = 0; d < box.size(); ++d)
    view = view.narrow(static_cast<std::int64_t>(d), box[d].begin, box[d].length);
  return view;
}

}  // namespace

Redistribution::Message Redistribution::message(const Segments& mine, const Segments& theirs,
                                                int peer) const {
  Message message{.peer = peer, .boxes = {{}}, .elements = 0};
  for (std::size_t d = 0; d < mine.size(); ++d) {
    const std::vector<Overlap> pieces = overlaps(mine[d], theirs[d]);
    std::vector<Box> longer;
    longer.reserve(message.boxes.size() * pieces.size());
    for (const Box& box : message.boxes)
      for (const Overlap& piece : pieces) {
        longer.push_back(box);
        longer.back().push_back({piece.mine, piece.length});
      }
    message.boxes = std::move(longer);
  }
  for (const Box& box : message.boxes) {
    std::int64_t elements = 1;
    for (const Run& run : box) elements *= run.length;
    message.elements += elements;
  }
  return message;
}

Redistribution::Redistribution(const Layout& from, const Layout& to,
                               const std::vector<std::int64_t>& extents, comm::Group& group,
                               std::string name)
    : group_(&group), name_(std::move(name)) {
  internal_check(from.dims.size() == extents.size() && to.dims.size() == extents.size(),
                 "a layout has a list of cuts for each dim");
  internal_check(to.partial.empty(), "nothing is cut into summands");
  const int self = group.rank();
  std::vector<Segments> befores, afters;  // by rank
  for (int rank = 0; rank < group.size(); ++rank) {
    befores.push_back(held_by(from, extents, rank));
    afters.push_back(held_by(to, extents, rank));
  }
  const auto before_on = [&](int rank) -> const Segments& {
    return befores[static_cast<std::size_t>(rank)];
  };
  const auto after_on = [&](int rank) -> const Segments& {
    return afters[static_cast<std::size_t>(rank)];
  };
  for (const auto& dim : after_on(self)) held_.push_back(length_of(dim));

  const std::vector<std::vector<int>> from_whom = senders(from, extents, group.size());
  const auto sends_to = [&](int sender, int receiver) {
    return std::ranges::binary_search(from_whom[static_cast<std::size_t>(receiver)], sender);
  };
  for (int peer = 0; peer < group.size(); ++peer) {
    if (sends_to(self, peer)) {
      Message out = message(before_on(self), after_on(peer), peer);
      if (peer == self) {
        kept_from_ = std::move(out);
      } else if (out.elements > 0) {
        sends_.push_back(std::move(out));
      }
    }
    if (sends_to(peer, self)) {
      Message in = message(after_on(self), before_on(peer), peer);
      if (peer == self) {
        kept_to_ = std::move(in);
      } else if (in.elements > 0) {
        receives_.push_back(std::move(in));
      }
    }
  }
  const auto receives_something = [&](int rank) {
    return std::ranges::any_of(from_whom[static_cast<std::size_t>(rank)], [&](int sender) {
      return sender != rank && message(after_on(rank), before_on(sender), sender).elements > 0;
    });
  };
  for (int rank = 0; rank < group.size() && !moves_; ++rank) moves_ = receives_something(rank);
  identity_ = before_on(self) == after_on(self) && !moves_;
}

std::int64_t Redistribution::sent() const {
  std::int64_t total = 0;
  for (const Message& m : sends_) total += m.elements;
  return total;
}

std::int64_t Redistribution::trailing(const at::Tensor& x) const {
  std::int64_t elements = 1;
  for (auto d = static_cast<std::int64_t>(held_.size()); d < x.dim(); ++d) elements *= x.size(d);
  return elements;
}

at::Tensor Redistribution::operator()(const at::Tensor& x) const {
  if (identity_) return x;
  const std::int64_t width = trailing(x);
  // Messages one after the other, each box by box.
  const auto flat_for = [&](const std::vector<Message>& messages) {
    std::int64_t elements = 0;
    for (const Message& m : messages) elements += m.elements * width;
    return at::empty({elements}, x.options());
  };
  const auto counts_of = [&](const std::vector<Message>& messages) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(group_->size()));
    for (const Message& m : messages) counts[static_cast<std::size_t>(m.peer)] = m.elements * width;
    return counts;
  };
  const at::Tensor outgoing = flat_for(sends_), incoming = flat_for(receives_);
  std::int64_t filled = 0;
  for (const Message& m : sends_)
    for (const Box& box : m.boxes) {
      const at::Tensor piece = view_of(x, box);
      outgoing.narrow(0, filled, piece.numel()).view(piece.sizes()).copy_(piece);
      filled += piece.numel();
    }
  comm::Handle handle;
  if (moves_)
    handle = communicate({.kind = CommKind::redistribute, .operation = name_}, [&] {
      return group_->all_to_all(buffer_of(outgoing), counts_of(sends_), buffer_of(incoming),
                                counts_of(receives_), name_);
    });

  std::vector<std::int64_t> shape = x.sizes().vec();
  std::ranges::copy(held_, shape.begin());
  at::Tensor result = at::zeros(shape, x.options());
  handle.wait();
  // Summands are added in the order of ranks, this rank's own at its place.
  const auto place_own = [&] {
    for (std::size_t i = 0; i < kept_to_.boxes.size(); ++i)
      view_of(result, kept_to_.boxes[i]).add_(view_of(x, kept_from_.boxes[i]));
  };
  bool own_placed = false;
  std::int64_t emptied = 0;
  for (const Message& m : receives_) {
    if (!own_placed && m.peer > group_->rank()) {
      place_own();
      own_placed = true;
    }
    for (const Box& box : m.boxes) {
      at::Tensor target = view_of(result, box);
      target.add_(incoming.narrow(0, emptied, target.numel()).view(target.sizes()));
      emptied += target.numel();
    }
  }
  if (!own_placed) place_own();
  return result;
}

}  // namespace braid::parallel
