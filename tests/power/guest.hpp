// The program as the first process of a virtual machine.
#pragma once

namespace holdfast::power {

// Mounts the disk, judges what the last cut left there, then writes until the power goes. Reads its
// parameters from the kernel's command line:
//   power.device=/dev/vda   the disk, an ext4 file system
//   power.seed=N            see Workload
//   power.relaxed=1         the control
// What it has to say goes to the console, one line each: see main.cpp.
void run_guest();

}  // namespace holdfast::power
