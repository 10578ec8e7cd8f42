# Compiles one set of sources once per instruction set, each time into its own namespace (prismem::portable, prismem::avx2, ...).
#
# prismem_isa_objects(<target> <source>...) makes object libraries <target>_portable and, on x86-64, <target>_avx2 and
# <target>_avx512, and lists them in <target>_ISAS. Nothing else in the project is compiled with instruction-set flags: which set runs is decided at run time
# (csrc/simd/dispatch.cpp). Sources given here include <cstdint>, <cstddef> and simd/ alone, because a std:: template compiled
# with AVX2 is a weak symbol that the linker may pick for code meant for every CPU.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(PRISMEM_X86_64 ON)
else()
  set(PRISMEM_X86_64 OFF)
endif()

# Contraction is off so that a*b+c is fused exactly where the source asks for it, with every compiler.
set(PRISMEM_KERNEL_FLAGS -O3 -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti -Wall -Wextra)

function(prismem_isa_object_library target isa)
  add_library(${target}_${isa} OBJECT ${ARGN})
  string(TOUPPER ${isa} upper)
  target_compile_definitions(${target}_${isa} PRIVATE PRISMEM_NAMESPACE=${isa} PRISMEM_TARGET_${upper}=1)
  target_include_directories(${target}_${isa} PRIVATE ${PROJECT_SOURCE_DIR}/csrc ${PROJECT_SOURCE_DIR}/csrc/include)
  target_compile_options(${target}_${isa} PRIVATE ${PRISMEM_KERNEL_FLAGS})
endfunction()

function(prismem_isa_objects target)
  set(isas portable)
  prismem_isa_object_library(${target} portable ${ARGN})
  if(PRISMEM_X86_64)
    list(APPEND isas avx2)
    prismem_isa_object_library(${target} avx2 ${ARGN})
    target_compile_options(${target}_avx2 PRIVATE -mavx2 -mfma -mf16c)
    # With the integer dot products (VNNI): CPUs that have AVX-512 without them run the avx2 set.
    list(APPEND isas avx512)
    prismem_isa_object_library(${target} avx512 ${ARGN})
    target_compile_options(${target}_avx512 PRIVATE -mavx2 -mfma -mf16c)
    if(PRISMEM_SIMDE_INCLUDE)
      target_compile_definitions(${target}_avx512 PRIVATE PRISMEM_SIMDE=1)
      target_include_directories(${target}_avx512 PRIVATE ${PROJECT_SOURCE_DIR}/tests/native/simde)
      target_include_directories(${target}_avx512 SYSTEM PRIVATE ${PRISMEM_SIMDE_INCLUDE})
      target_compile_options(${target}_avx512 PRIVATE -Wno-psabi)
    else()
      target_compile_options(${target}_avx512 PRIVATE -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni)
      # gcc before 13 warns of the undefined vectors in its own AVX-512 header.
      target_compile_options(${target}_avx512 PRIVATE -Wno-maybe-uninitialized)
    endif()
  endif()
  set(${target}_ISAS ${isas} PARENT_SCOPE)
endfunction()
