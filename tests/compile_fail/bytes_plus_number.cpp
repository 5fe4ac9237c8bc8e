// A bare number (of elements, say) is not a number of bytes.
// error: (no match for 'operator\+'|invalid operands to binary expression)

#include <cstdint>

#include "planner/core/units.h"

using braid::Bytes;

#ifdef BRAID_MISTAKE
auto sum(Bytes size, std::int64_t elements) { return size + elements; }
#else
auto sum(Bytes size, std::int64_t elements) { return size + Bytes(2) * elements; }
#endif
