# cmake -DMESSAGE=<regex> -P expect_failure.cmake -- <command>...
# Passes where the command fails and prints what matches. A launcher that hangs behind the message (Open
# MPI has been seen to, when ranks abort while others leave) is ended.
set(command)
set(found FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(found)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(found TRUE)
  endif()
endforeach()

execute_process(COMMAND ${command} TIMEOUT 50 RESULT_VARIABLE status OUTPUT_VARIABLE output
                ERROR_VARIABLE output)
message("${output}")
if(status EQUAL 0)
  message(FATAL_ERROR "expected a failure, but the status is 0")
endif()
if(NOT output MATCHES "${MESSAGE}")
  message(FATAL_ERROR "expected a message that matches: ${MESSAGE}")
endif()
