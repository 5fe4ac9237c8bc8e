#include "runtime/parallel/layer.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <set>
#include <utility>

#include "planner/core/error.h"
#include "runtime/ops/fp8.h"
#include "runtime/ops/linear.h"

namespace braid::parallel {

void Saved::keep(int slot, const at::Tensor& tensor) {
  const auto index = static_cast<std::size_t>(slot);
  if (slots_.size() <= index) slots_.resize(index + 1);
  slots_[index] = tensor;
}

const at::Tensor& Saved::at(int slot) const {
  internal_check(has(slot), "backward asks for what forward kept");
  return slots_[static_cast<std::size_t>(slot)];
}

bool Saved::has(int slot) const {
  const auto index = static_cast<std::size_t>(slot);
  return index < slots_.size() && slots_[index].defined();
}

void Saved::drop(int slot, int count) {
  const auto end = std::min(slots_.size(), static_cast<std::size_t>(slot + count));
  for (auto index = static_cast<std::size_t>(slot); index < end; ++index) slots_[index].reset();
}

std::int64_t Saved::bytes() const {
  std::set<const void*> seen;
  std::int64_t total = 0;
  for (const at::Tensor& t : slots_) {
    if (!t.defined()) continue;
    if (seen.insert(t.storage().unsafeGetStorageImpl()).second)
      total += static_cast<std::int64_t>(t.storage().nbytes());
  }
  return total;
}

void WeightWork::later(std::function<void()> work, std::function<void()> prepare) {
  items_.push_back({std::move(work), std::move(prepare), ops::Fp8Scope::on()});
  if (when_ == When::at_once) run();
}

at::Tensor WeightWork::rows(const at::Tensor& rows, const at::Tensor& kept) const {
  const bool stays = kept.defined() && kept.is_alias_of(rows);
  return waits() && !stays ? ops::sum_of_rows(rows) : rows;
}

// One item at a time is prepared, so that no more than one holds what it has gathered.
void WeightWork::run() {
  std::vector<Item> items = std::exchange(items_, {});
  auto next = items.begin();
  const auto prepare_next = [&] {
    while (next != items.end() && !next->prepare) ++next;
    if (next != items.end()) next->prepare();
  };
  prepare_next();
  for (auto item = items.begin(); item != items.end(); ++item) {
    {
      const ops::Fp8Scope fp8(item->rounds);
      item->work();
    }
    *item = {};
    if (item == next) prepare_next();
  }
}

}  // namespace braid::parallel
