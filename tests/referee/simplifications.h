#pragma once
// Where the planner states a formula that is simpler than the definition. With all of them off the
// referee prices from the definitions; each one on makes it follow the planner's statement, so that
// everything else can be compared closely.

namespace braid::referee {

struct Simplifications {
  // Redistribution: every device sends as much as the one that sends or receives most, over the
  // slowest port of the devices that share its samples; the latency is that of all of these.
  bool even_redistribution = false;
  // The blocks behind which a head's gradients hide are the mean stage's, of the first type of
  // block and split like the head.
  bool blocks_like_head = false;
  // Chunks of a stage take equal shares of its time.
  bool even_chunks = false;
  // From the last stage to the first it is as far as between the farthest neighbours.
  bool farthest_wrap = false;

  static constexpr Simplifications of_the_planner() { return {true, true, true, true}; }
};

}  // namespace braid::referee
