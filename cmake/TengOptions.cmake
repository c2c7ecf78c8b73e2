# Warnings, floating-point rules, sanitizers, instruction sets.
option(TENG_WERROR "Warnings are errors" ON)
set(TENG_SANITIZE "" CACHE STRING "address,undefined or thread")

set(TG_C_FLAGS -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes
    -Wvla -Wundef -ffp-contract=off -fvisibility=hidden)
if(TENG_WERROR)
  list(APPEND TG_C_FLAGS -Werror)
endif()
# Kernels: fused multiply-add is stated in the source (fmaf), never left to the compiler, so that results do not
# depend on how a loop was vectorised.
set(TG_KERNEL_FLAGS -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(TENG_SANITIZE)
  set(sanitize -fsanitize=${TENG_SANITIZE} -fno-omit-frame-pointer -g)
  if(TENG_SANITIZE MATCHES "undefined")
    list(APPEND sanitize -fno-sanitize-recover=all)
  endif()
  add_compile_options(${sanitize})
  add_link_options(${sanitize})
endif()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(TG_ISA_LIST v2 v3 v4 v4bf)
  set(TG_ISA_FLAGS_v2 -march=x86-64-v2)
  set(TG_ISA_FLAGS_v3 -march=x86-64-v3)
  set(TG_ISA_FLAGS_v4 -march=x86-64-v4 -mprefer-vector-width=512)
  set(TG_ISA_FLAGS_v4bf -march=x86-64-v4 -mavx512bf16 -mavx512vnni -mavx512vbmi -mprefer-vector-width=512)
else()
  set(TG_ISA_LIST neon)
  set(TG_ISA_FLAGS_neon "")
endif()
