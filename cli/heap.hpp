// Keeps the memory of a program that runs for months near what it uses.
#pragma once

namespace holdfast::cli {

// For programs with threads and large frames (relay, gateway): what a large frame took goes back to
// the system when it is freed. Call it before the first thread.
void return_large_blocks();

}  // namespace holdfast::cli
