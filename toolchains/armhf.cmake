# 32-bit ARMv7 with hardware floating point (Pi 2 and later): `make cross ARCH=armhf`. It dies of
# SIGILL on a Pi Zero and a Pi 1: for those there is armv6.cmake.
set(CMAKE_SYSTEM_PROCESSOR armv7l)
set(triplet arm-linux-gnueabihf)
set(emulator qemu-arm)
include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)
