#include "heap.hpp"

#include <malloc.h>

namespace holdfast::cli {

void return_large_blocks() {
#ifdef M_MMAP_THRESHOLD  // glibc; others return large blocks anyway
  // Blocks from here on are mapped each for itself, as at the start. Without this line glibc raises
  // the threshold to the largest block that was ever freed (a frame may have 1 MiB), takes such
  // blocks from its heaps from then on, and never gives those back.
  constexpr int kMappedFromBytes = 128 * 1024;
  mallopt(M_MMAP_THRESHOLD, kMappedFromBytes);
  // One heap, where glibc would make one for each of NNG's threads: each keeps what its thread once
  // used. The threads wait for each other at most while one allocates.
  mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace holdfast::cli
