# One kernel source, compiled once per instruction set. Only the folder of the target's architecture takes part.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(kernel_foreign x86_64)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(kernel_foreign aarch64)
else()
  message(FATAL_ERROR "horo/kernel has no folder for the architecture ${CMAKE_SYSTEM_PROCESSOR}")
endif()
foreach(kernel_target ${target} ${target}_test)
  if(TARGET ${kernel_target})
    get_target_property(kernel_sources ${kernel_target} SOURCES)
    list(FILTER kernel_sources EXCLUDE REGEX "/kernel/${kernel_foreign}/")
    set_property(TARGET ${kernel_target} PROPERTY SOURCES ${kernel_sources})
  endif()
endforeach()

# Contraction and -ffast-math would change bits. Nobody reads exception flags, so comparisons may be speculated, which
# the vectoriser needs.
set(kernel_flags -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Loops over elements that are vectors already, and instrumented ones, cannot be vectorised, and need not be.
  list(APPEND kernel_flags -Wno-pass-failed)
else()
  # About vector types in internal functions; and g++ 12 calls the undefined vectors of its own AVX-512 header
  # uninitialized.
  list(APPEND kernel_flags -Wno-psabi -Wno-ignored-attributes -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
function(kernel_isa file)
  set_source_files_properties(${folder}/${file} PROPERTIES COMPILE_OPTIONS "${kernel_flags};${ARGN}"
    SKIP_PRECOMPILE_HEADERS ON)
endfunction()

kernel_isa(generic.cc)
kernel_isa(crc32c.cc)
kernel_isa(x86_64/avx2.cc -mavx2 -mf16c)
set(kernel_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl)
kernel_isa(x86_64/avx512.cc -mavx2 -mf16c ${kernel_avx512} -mprefer-vector-width=512)
kernel_isa(x86_64/stream_avx512.cc ${kernel_avx512})
kernel_isa(x86_64/crc32c_sse42.cc -msse4.2 -mpclmul)
kernel_isa(x86_64/crc32c_avx512.cc -msse4.2 -mpclmul ${kernel_avx512} -mvpclmulqdq)
kernel_isa(aarch64/neon.cc)
kernel_isa(aarch64/sve.cc -march=armv8.2-a+sve+fp16+bf16)
kernel_isa(aarch64/crc32c_armv8.cc -march=armv8-a+crc+crypto)
# Files with instruction sets of their own stay files of their own.
set_target_properties(horo_kernel PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
