#pragma once
// Which block of memory a request gets where blocks are dear to make, stay once they are made, and
// are handed out whole. What is handed out follows from the order of requests and returns alone, so
// that ranks that ask in the same order get the same blocks, and a planner knows what a run will
// have made.

#include <cstddef>
#include <vector>

#include "planner/core/units.h"

namespace braid {

class BlockPool {
 public:
  using Block = int;
  static constexpr Block kNone = -1;

  // The smallest free block that suits `bytes`: holds it and is not much larger.
  Block find(Bytes bytes) const;
  // One more, in use.
  Block make(Bytes bytes);
  // The size of a block that is made for `bytes`: whole pages, where that is not much more.
  static Bytes rounded(Bytes bytes);
  void use(Block block) { at(block).used = true; }  // one that was found
  void give_back(Block block) { at(block).used = false; }

  Bytes size(Block block) const { return blocks_[static_cast<std::size_t>(block)].size; }
  Bytes made() const { return made_; }  // of all blocks

 private:
  struct Entry {
    Bytes size;
    bool used = false;
  };
  Entry& at(Block block) { return blocks_[static_cast<std::size_t>(block)]; }

  std::vector<Entry> blocks_;
  Bytes made_;
};

}  // namespace braid
