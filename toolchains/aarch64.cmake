# 64-bit ARM (a 64-bit Raspberry Pi OS: Pi Zero 2, 3, 4, 5): `make cross ARCH=arm64`, or
#   cmake -B build/aarch64 --toolchain toolchains/aarch64.cmake -DHOLDFAST_STATIC=ON -DHOLDFAST_SHARED=OFF
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(triplet aarch64-linux-gnu)
set(emulator qemu-aarch64)
include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)
# Pages of 4 kB (all boards) and 16 kB (Pi 5), not of 64 kB, which cost 50 kB of padding.
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-z,max-page-size=16384)
