# Writes OUTPUT, a header with the commit of SOURCE. A tarball of 'git archive' has it in this file.
set(commit [=[$Format:%h$]=])
if(commit MATCHES "Format")
  execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                  RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    set(commit "unknown")
  endif()
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT
     "#pragma once\n\ninline constexpr const char* kCommit = \"@commit@\";\n" @ONLY)
