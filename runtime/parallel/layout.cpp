#include "runtime/parallel/layout.h"

#include "planner/core/error.h"

namespace braid::parallel {

namespace {

void append(std::vector<Segment>& list, Segment next) {
  if (!list.empty() && list.back().end == next.begin) {
    list.back().end = next.end;
  } else {
    list.push_back(next);
  }
}

// Elements [begin, end) of what the list holds, counted along it.
void append_part(const std::vector<Segment>& whole, std::int64_t begin, std::int64_t end,
                 std::vector<Segment>& part) {
  std::int64_t position = 0;
  for (const Segment& s : whole) {
    const std::int64_t from = std::max(begin, position);
    const std::int64_t to = std::min(end, position + s.size());
    if (from < to) append(part, {s.begin + from - position, s.begin + to - position});
    position += s.size();
  }
}

}  // namespace

std::vector<Segment> segments(const std::vector<Cut>& cuts, std::int64_t extent, int rank) {
  std::vector<Segment> held = {{0, extent}};
  std::int64_t length = extent;
  for (const Cut& cut : cuts) {
    const int index = index_of(rank, cut);
    const int size = cut.axis.size;
    const int pieces = cut.kind == CutKind::zigzag ? 2 * size : size;
    internal_check(length % pieces == 0, "a cut divides its dim");
    const std::int64_t piece = length / pieces;
    std::vector<Segment> part;
    append_part(held, index * piece, (index + 1) * piece, part);
    if (cut.kind == CutKind::zigzag) {
      const std::int64_t mirrored = pieces - 1 - index;
      append_part(held, mirrored * piece, (mirrored + 1) * piece, part);
    }
    held = std::move(part);
    length /= size;
  }
  return held;
}

}  // namespace braid::parallel
