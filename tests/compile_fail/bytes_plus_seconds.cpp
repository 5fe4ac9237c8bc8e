// A size and a time do not add up.
// error: (no match for 'operator\+'|invalid operands to binary expression)

#include "planner/core/units.h"

using braid::Bytes;
using braid::Seconds;

#ifdef BRAID_MISTAKE
auto sum(Bytes size, Seconds time) { return size + time; }
#else
auto sum(Bytes size, Bytes more) { return size + more; }
#endif
