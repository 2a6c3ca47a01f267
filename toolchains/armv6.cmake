# ARMv6 (Pi Zero, Pi 1): `make cross ARCH=armv6`. Made of Debian's armel packages, which are for
# ARMv5; our own code uses the floating point unit, with the same calling convention (softfp).
#
# libsqlite3-dev:armel and the others cannot be installed beside those of the build machine, so
# platforms/debian/armel-root unpacks them into this folder:
set(HOLDFAST_ARMEL_ROOT ${CMAKE_CURRENT_LIST_DIR}/../build/root/armel CACHE PATH
    "Debian armel packages, unpacked")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HOLDFAST_ARMEL_ROOT)
list(PREPEND CMAKE_PREFIX_PATH ${HOLDFAST_ARMEL_ROOT}/usr)
set(CMAKE_SYSTEM_PROCESSOR armv6l)
set(triplet arm-linux-gnueabi)
set(emulator qemu-arm -cpu arm1176 -L ${HOLDFAST_ARMEL_ROOT})
foreach(language C CXX)
  set(CMAKE_${language}_FLAGS_INIT "-march=armv6k -mfpu=vfp -mfloat-abi=softfp -marm")
endforeach()
include(${CMAKE_CURRENT_LIST_DIR}/debian.cmake)
