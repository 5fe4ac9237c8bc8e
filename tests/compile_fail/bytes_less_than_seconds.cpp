// A size and a time have no order.
// error: (no match for 'operator<'|invalid operands to binary expression)

#include "planner/core/units.h"

using braid::Bytes;
using braid::Seconds;

#ifdef BRAID_MISTAKE
bool less(Bytes size, Seconds time) { return size < time; }
#else
bool less(Bytes size, Bytes other) { return size < other; }
#endif
