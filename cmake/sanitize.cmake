# Builds for the native tests: everything under the sanitizers that PRISMEM_SANITIZE names, which end the program at the first fault.
if(PRISMEM_SANITIZE)
  # The kernels have no run-time type information, which the check of virtual tables would need.
  add_compile_options(-fsanitize=${PRISMEM_SANITIZE} -fno-sanitize=vptr -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${PRISMEM_SANITIZE})
  list(APPEND PRISMEM_KERNEL_FLAGS -O1)
endif()
