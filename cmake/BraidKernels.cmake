# braid_kernels(OBJECTS FILE.cu...): compiles kernels for the GPUs that BRAID_CUDA_ARCHITECTURES names
# and sets OBJECTS to the object files.
set(BRAID_CUDA_ARCHITECTURES 80 90 100 CACHE STRING "Compute capabilities to build kernels for")

function(braid_kernels objects)
  set(targets "")
  foreach(number IN LISTS BRAID_CUDA_ARCHITECTURES)
    list(APPEND targets -gencode "arch=compute_${number},code=sm_${number}")
  endforeach()
  # Newer GPUs translate the newest one's intermediate code.
  list(GET BRAID_CUDA_ARCHITECTURES -1 newest)
  list(APPEND targets -gencode "arch=compute_${newest},code=compute_${newest}")
  set(made "")
  foreach(source IN LISTS ARGN)
    get_filename_component(name "${source}" NAME)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/kernels/${name}.o")
    add_custom_command(
      OUTPUT "${object}"
      COMMAND "${TORCH_NVCC}" -c -O3 -std=c++17 ${targets} -I "${CMAKE_SOURCE_DIR}"
              -I "${TORCH_CUDA_INCLUDE}" -Xcompiler -fPIC -MD -MF "${object}.d" -o "${object}"
              "${source}"
      DEPENDS "${source}"
      DEPFILE "${object}.d"
      COMMENT "Building kernels ${name}"
      VERBATIM)
    list(APPEND made "${object}")
  endforeach()
  file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/kernels")
  set_source_files_properties(${made} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${objects} ${made} PARENT_SCOPE)
endfunction()
