#include "support/allocations.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

constexpr std::int64_t kNever = INT64_MAX;

thread_local std::int64_t t_live = 0;
thread_local std::int64_t t_peak = 0;
thread_local std::int64_t t_until_failure = kNever;

void* try_allocate(std::size_t size) noexcept {
  if (t_until_failure != kNever && t_until_failure-- <= 0) return nullptr;
  void* const block = std::malloc(size == 0 ? 1 : size);
  if (block == nullptr) return nullptr;
  t_live += static_cast<std::int64_t>(malloc_usable_size(block));
  t_peak = std::max(t_peak, t_live);
  return block;
}

void* allocate(std::size_t size) {
  void* const block = try_allocate(size);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void release(void* block) {
  if (block == nullptr) return;
  t_live -= static_cast<std::int64_t>(malloc_usable_size(block));
  std::free(block);
}

}  // namespace

// All forms but the aligned ones, because a sanitizer's own forms do not call each other.
void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return try_allocate(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return try_allocate(size);
}
void operator delete(void* block) noexcept { release(block); }
void operator delete[](void* block) noexcept { release(block); }
void operator delete(void* block, std::size_t) noexcept { release(block); }
void operator delete[](void* block, std::size_t) noexcept { release(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { release(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { release(block); }

namespace holdfast::test {

AllocationMeter::AllocationMeter() : start_(t_live) { t_peak = t_live; }

std::size_t AllocationMeter::peak_bytes() const {
  return static_cast<std::size_t>(t_peak - start_);
}

AllocationFailure::AllocationFailure(std::int64_t nth) { t_until_failure = nth; }

AllocationFailure::~AllocationFailure() { t_until_failure = kNever; }

bool AllocationFailure::happened() const { return t_until_failure < 0; }

}  // namespace holdfast::test
