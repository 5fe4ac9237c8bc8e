# Imported targets for the libtorch inside the PyPI `torch` package, without TorchConfig.cmake, which
# is a hard error where there is no CUDA toolkit.
#   torch_lite::cpu    libtorch_cpu and libc10
#   torch_lite::cuda   + libtorch_cuda and libc10_cuda, where CUDA's headers are
#   torch_lite::cublaslt   cublasLt.h, and libcublasLt.so.13 where it is
#   torch_lite::nccl   nccl.h and libnccl.so.2, where they are
# TORCH_DIR (cache or environment) names the package's folder; else the project's .venv is asked,
# then python3.
set(TORCH_DIR "$ENV{TORCH_DIR}" CACHE PATH "Folder of the torch package")
if(NOT TORCH_DIR)
  foreach(python "${CMAKE_SOURCE_DIR}/.venv/bin/python" "$ENV{VIRTUAL_ENV}/bin/python" python3)
    # find_spec finds the package without importing it: 20 ms, and no CUDA library is needed.
    execute_process(
      COMMAND "${python}" -c
              "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0 AND EXISTS "${found}/lib/libtorch_cpu.so")
      set(TORCH_DIR "${found}" CACHE PATH "Folder of the torch package" FORCE)
      break()
    endif()
  endforeach()
endif()
if(EXISTS "${TORCH_DIR}/version.py")
  file(STRINGS "${TORCH_DIR}/version.py" line REGEX "^__version__")
  string(REGEX REPLACE "^[^']*'([^'+]*).*" "\\1" TorchLite_VERSION "${line}")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchLite REQUIRED_VARS TORCH_DIR VERSION_VAR TorchLite_VERSION)
if(NOT TorchLite_FOUND OR TARGET torch_lite::cpu)
  return()
endif()
get_filename_component(site "${TORCH_DIR}/.." ABSOLUTE)
find_package(Threads REQUIRED)

# torch brings a newer fmt: searched after the system's, it can't shadow the one we link with.
add_library(torch_lite::c10 SHARED IMPORTED)
set_target_properties(torch_lite::c10 PROPERTIES
  IMPORTED_LOCATION "${TORCH_DIR}/lib/libc10.so"
  INTERFACE_COMPILE_OPTIONS
    "-idirafter${TORCH_DIR}/include;-idirafter${TORCH_DIR}/include/torch/csrc/api/include")
add_library(torch_lite::cpu SHARED IMPORTED)
set_target_properties(torch_lite::cpu PROPERTIES
  IMPORTED_LOCATION "${TORCH_DIR}/lib/libtorch_cpu.so"
  INTERFACE_LINK_LIBRARIES "torch_lite::c10;Threads::Threads")

# A toolkit beside nvcc has all headers; of the wheels some may be missing.
find_program(TORCH_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin)
get_filename_component(toolkit "${TORCH_NVCC}" REALPATH)
get_filename_component(toolkit "${toolkit}/../.." ABSOLUTE)
find_path(TORCH_CUDA_INCLUDE NAMES crt/host_defines.h
          HINTS "${toolkit}/include" "${toolkit}/targets/x86_64-linux/include"
                "${site}/nvidia/cu13/include" /usr/local/cuda/include)
find_file(TORCH_CUDART NAMES libcudart.so.13
          HINTS "${site}/nvidia/cu13/lib" /usr/local/cuda/lib64)
find_path(TORCH_NCCL_INCLUDE nccl.h HINTS "${site}/nvidia/nccl/include" /usr/local/cuda/include)
find_file(TORCH_NCCL_LIBRARY NAMES libnccl.so.2
          HINTS "${site}/nvidia/nccl/lib" /usr/lib/x86_64-linux-gnu /usr/local/cuda/lib64)
find_path(TORCH_CUBLAS_INCLUDE cublasLt.h
          HINTS "${toolkit}/include" "${toolkit}/targets/x86_64-linux/include"
                "${site}/nvidia/cu13/include" /usr/local/cuda/include)
find_file(TORCH_CUBLASLT NAMES libcublasLt.so.13
          HINTS "${site}/nvidia/cu13/lib" /usr/local/cuda/lib64
                /usr/local/cuda/targets/x86_64-linux/lib)
if(TORCH_CUDA_INCLUDE AND TORCH_CUDART AND EXISTS "${TORCH_DIR}/lib/libtorch_cuda.so")
  add_library(torch_lite::cuda INTERFACE IMPORTED)
  set_target_properties(torch_lite::cuda PROPERTIES
    INTERFACE_COMPILE_OPTIONS "-idirafter${TORCH_CUDA_INCLUDE}")
  target_link_libraries(torch_lite::cuda INTERFACE
    torch_lite::cpu "${TORCH_DIR}/lib/libc10_cuda.so"
    # Kernels register themselves in static initialisers: --as-needed would drop the library.
    "-Wl,--push-state,--no-as-needed,${TORCH_DIR}/lib/libtorch_cuda.so,--pop-state"
    "${TORCH_CUDART}"
    "-Wl,--allow-shlib-undefined")  # cuBLAS and its kin need not be there to link
endif()
if(TORCH_NCCL_INCLUDE AND TORCH_NCCL_LIBRARY AND TORCH_CUDA_INCLUDE)
  add_library(torch_lite::nccl INTERFACE IMPORTED)
  set_target_properties(torch_lite::nccl PROPERTIES
    INTERFACE_COMPILE_OPTIONS "-idirafter${TORCH_NCCL_INCLUDE};-idirafter${TORCH_CUDA_INCLUDE}")
  target_link_libraries(torch_lite::nccl INTERFACE "${TORCH_NCCL_LIBRARY}")
endif()
if(TORCH_CUBLAS_INCLUDE AND TORCH_CUDA_INCLUDE)
  add_library(torch_lite::cublaslt INTERFACE IMPORTED)
  set_target_properties(torch_lite::cublaslt PROPERTIES
    INTERFACE_COMPILE_OPTIONS "-idirafter${TORCH_CUBLAS_INCLUDE};-idirafter${TORCH_CUDA_INCLUDE}")
  if(TORCH_CUBLASLT)
    target_link_libraries(torch_lite::cublaslt INTERFACE "${TORCH_CUBLASLT}")
  endif()
endif()
