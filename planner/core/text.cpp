#include "planner/core/text.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>

#include "planner/core/error.h"

namespace braid {

namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array kByteUnits = {
    Unit{"B", 1.0},         Unit{"KB", 1e3},           Unit{"MB", 1e6},
    Unit{"GB", 1e9},        Unit{"TB", 1e12},          Unit{"KiB", 1024.0},
    Unit{"MiB", 1048576.0}, Unit{"GiB", 1073741824.0}, Unit{"TiB", 1099511627776.0},
};
constexpr std::array kBandwidthUnits = {
    Unit{"B/s", 1.0},      Unit{"MB/s", 1e6},           Unit{"GB/s", 1e9},
    Unit{"TB/s", 1e12},    Unit{"GiB/s", 1073741824.0}, Unit{"Mb/s", 1e6 / 8},
    Unit{"Gb/s", 1e9 / 8}, Unit{"Tb/s", 1e12 / 8},
};
constexpr std::array kTimeUnits = {Unit{"s", 1.0}, Unit{"ms", 1e-3}, Unit{"us", 1e-6},
                                   Unit{"ns", 1e-9}};
constexpr std::array kFlopsUnits = {Unit{"GFLOPS", 1e9}, Unit{"TFLOPS", 1e12},
                                    Unit{"PFLOPS", 1e15}};

double parse_quantity(std::string_view text, std::span<const Unit> units, std::string_view kind,
                      std::string_view where) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  const auto unit = std::ranges::find(units, suffix, &Unit::name);
  const bool known = suffix.empty() || unit != units.end();
  const double value = suffix.empty() || !known ? number : number * unit->factor;
  // A unit may take a number that is finite beyond what a double holds.
  if (status == std::errc() && known && std::isfinite(value) && value >= 0) return value;
  std::vector<std::string> names;
  for (const Unit& u : units) names.emplace_back(u.name);
  throw Error({.what = fmt::format("'{}' is not {}", text, kind),
               .where = std::string(where),
               .fix = fmt::format("write a number and one of {}", join(names, ", "))});
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row.back();
}

template <class T>
std::string join_any(std::span<const T> parts, std::string_view separator) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += fmt::format("{}", parts[i]);
  }
  return text;
}

}  // namespace

std::string format_bytes(Bytes size) {
  const auto bytes = static_cast<double>(size.value());
  if (std::abs(bytes) >= 1024.0 * 1073741824.0)
    return fmt::format("{:.1f} TiB", bytes / 1099511627776.0);
  if (std::abs(bytes) >= 1073741824.0) return fmt::format("{:.1f} GiB", bytes / 1073741824.0);
  if (std::abs(bytes) >= 1048576.0) return fmt::format("{:.1f} MiB", bytes / 1048576.0);
  if (std::abs(bytes) >= 1024.0) return fmt::format("{:.1f} KiB", bytes / 1024.0);
  return fmt::format("{} B", size.value());
}

std::string format_seconds(Seconds time) {
  const double s = time.value();
  if (std::abs(s) >= 1.0) return fmt::format("{:.3f} s", s);
  if (std::abs(s) >= 1e-3) return fmt::format("{:.2f} ms", s * 1e3);
  if (s == 0.0) return "0 s";
  return fmt::format("{:.1f} us", s * 1e6);
}

std::string format_count(double count) {
  if (count >= 1e12) return fmt::format("{:.2f} T", count / 1e12);
  if (count >= 1e9) return fmt::format("{:.2f} B", count / 1e9);
  if (count >= 1e6) return fmt::format("{:.1f} M", count / 1e6);
  if (count >= 1e3) return fmt::format("{:.1f} K", count / 1e3);
  return fmt::format("{:.0f}", count);
}

std::string format_percent(double fraction) { return fmt::format("{:.1f}%", fraction * 100); }

Bytes parse_bytes(std::string_view text, std::string_view where) {
  const double bytes = parse_quantity(text, kByteUnits, "a memory size", where);
  if (bytes >= 9e18)
    throw Error({.what = fmt::format("'{}' is more memory than 64 bits can count", text),
                 .where = std::string(where),
                 .fix = "write a size below 8 EiB"});
  return Bytes(static_cast<std::int64_t>(std::llround(bytes)));
}
BytesPerSecond parse_bandwidth(std::string_view text, std::string_view where) {
  return BytesPerSecond(parse_quantity(text, kBandwidthUnits, "a bandwidth", where));
}
Seconds parse_seconds(std::string_view text, std::string_view where) {
  return Seconds(parse_quantity(text, kTimeUnits, "a time", where));
}
FlopsPerSecond parse_flops(std::string_view text, std::string_view where) {
  return FlopsPerSecond(parse_quantity(text, kFlopsUnits, "a compute rate", where));
}

namespace {

// The digits of a name, or what is beside them.
std::string part_of(std::string_view name, bool digits) {
  std::string part(name);
  std::erase_if(part, [digits](char c) { return (c >= '0' && c <= '9') != digits; });
  return part;
}

// fp16 is no misspelling of fp64: who writes another number means another thing. In a path such as
// layers.1.norm numbers are places, and the neighbour's is near.
bool differs_in_digits(std::string_view name, std::string_view candidate) {
  return name.find('.') == std::string_view::npos &&
         part_of(name, false) == part_of(candidate, false) &&
         part_of(name, true) != part_of(candidate, true);
}

}  // namespace

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    if (differs_in_digits(name, candidate)) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return join_any(parts, separator);
}
std::string join(std::span<const int> parts, std::string_view separator) {
  return join_any(parts, separator);
}

std::vector<int> divisors(int n) {
  std::vector<int> low;
  std::vector<int> high;
  for (int i = 1; static_cast<std::int64_t>(i) * i <= n; ++i) {
    if (n % i != 0) continue;
    low.push_back(i);
    if (i != n / i) high.push_back(n / i);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

bool is_power_of_two(std::int64_t n) {
  return n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n));
}

}  // namespace braid
