# Cross build for 64-bit ARM: Debian's cross compiler, the libraries that scripts/arm64-root.sh has fetched, and QEMU,
# through which CTest runs the tests. Used by the preset "arm64"; a build on an ARM machine needs none of this.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

set(TENG_ARM64_ROOT "${CMAKE_CURRENT_LIST_DIR}/../build/arm64-root" CACHE PATH "Folder of scripts/arm64-root.sh")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TENG_ARM64_ROOT)
get_filename_component(CMAKE_FIND_ROOT_PATH "${TENG_ARM64_ROOT}" ABSOLUTE)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
