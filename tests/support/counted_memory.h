#pragma once
// Tensors without memory (at::kMeta), counted: how many bytes would be alive.

#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>

namespace braid {

// From its first use to the end of the program, over all threads of a program that has one.
class CountedMemory final : public c10::Allocator {
 public:
  static std::int64_t alive() { return instance().alive_; }

  c10::DataPtr allocate(std::size_t bytes) override {
    auto size = std::make_unique<std::int64_t>(static_cast<std::int64_t>(bytes));
    alive_ += *size;
    return {nullptr, size.release(), &CountedMemory::free, c10::Device(c10::kMeta)};
  }
  void copy_data(void*, const void*, std::size_t) const override {}

 private:
  CountedMemory() { c10::SetAllocator(c10::kMeta, this); }
  static CountedMemory& instance() {
    static CountedMemory counted;
    return counted;
  }
  static void free(void* size) {
    const std::unique_ptr<std::int64_t> freed(static_cast<std::int64_t*>(size));
    instance().alive_ -= *freed;
  }

  std::int64_t alive_ = 0;
};

}  // namespace braid
