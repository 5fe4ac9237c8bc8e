# What every target of the project is built with.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

include(BraidPrecompile)

find_program(BRAID_CCACHE ccache)
if(BRAID_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${BRAID_CCACHE}")
endif()
if(BRAID_PCH AND CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
  # Without the first ccache neither keeps a precompiled header nor what was compiled with one: it
  # fears macros defined ahead of it (there are none) and __TIME__ inside of it. Without the second
  # it reads those 300 MB anew for each file, 0.4 s.
  list(PREPEND CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros
       CCACHE_INODECACHE=true)
  # ccache asks the preprocessor, which must say then that it read a precompiled header.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-fpch-preprocess)
  endif()
endif()

# A sanitizer has to see every target, so it goes into the flags of the whole build.
if(BRAID_SANITIZE)
  add_compile_options("-fsanitize=${BRAID_SANITIZE}" -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options("-fsanitize=${BRAID_SANITIZE}")
endif()

set(braid_warnings -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # std::string's operator+ sets off -Wrestrict falsely (GCC bug 105651, mended in 13).
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    list(APPEND braid_warnings -Wno-restrict)
  endif()
  # The sanitizers' own code confuses warnings that follow values; GCC's manual says so under
  # -fsanitize. There they are shown and no more.
  if(BRAID_SANITIZE)
    list(APPEND braid_warnings -Wno-error)
  endif()
endif()

function(braid_target name)
  target_compile_options(${name} PRIVATE ${braid_warnings})
endfunction()

# For a target that calls what is optimized and need not be, such as the tests.
function(braid_optimize_less name)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O1>)
endfunction()
