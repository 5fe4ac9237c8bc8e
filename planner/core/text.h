#pragma once
// Numbers and names as people read and write them.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/core/units.h"

namespace braid {

std::string format_bytes(Bytes size);         // 38.4 GiB
std::string format_seconds(Seconds time);     // 1.234 s, 12.3 ms, 4.5 us
std::string format_count(double count);       // 6.74 B, 405.9 B, 124 M
std::string format_percent(double fraction);  // 12.3%

// "16GiB", "24GB", "80 GiB", "512MiB", or a plain number of bytes. `where` names the flag or path.
Bytes parse_bytes(std::string_view text, std::string_view where);
// "450GB/s", "400Gb/s" (bits), or a plain number of bytes per second.
BytesPerSecond parse_bandwidth(std::string_view text, std::string_view where);
// "3us", "1.5ms", or a plain number of seconds.
Seconds parse_seconds(std::string_view text, std::string_view where);
// "989TFLOPS", or a plain number of FLOP/s.
FlopsPerSecond parse_flops(std::string_view text, std::string_view where);

// The candidate with the least edit distance; empty when nothing is near.
std::string nearest(std::string_view name, std::span<const std::string> candidates);
std::string join(std::span<const std::string> parts, std::string_view separator);
std::string join(std::span<const int> parts, std::string_view separator);

std::vector<int> divisors(int n);  // ascending
bool is_power_of_two(std::int64_t n);

}  // namespace braid
