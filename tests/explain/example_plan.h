#pragma once
// A plan whose every figure is worked out by hand: two stages of one device, 1F1B, two
// micro-batches; forward 1 s, backward 2 s, a transfer 0.5 s.
//
//   time      0    1    2    3    4    5    6    7    8    9    10
//   stage 0   [F0  ][F1  ]               [B0       ]    [B1       ]
//   stage 1        :  [F0 ][B0      ][F1 ][B1      ]
//
// Each stage computes for 6 s of 10; without transfers the iteration would take 9 s.

#include "planner/plan/plan.h"

namespace braid {

Plan example_plan();
// The example's plan stretched over more stages, all but the first and the last alike.
Plan long_plan(int stages);

}  // namespace braid
