# Installs BUILD into PREFIX, and plans with what is there.

file(REMOVE_RECURSE "${PREFIX}")

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE error)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGV}: ${status}\n${out}${error}")
  endif()
endfunction()

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${PREFIX}")
set(share "${PREFIX}/share/braid")
run("${PREFIX}/bin/braid" plan --model "${share}/configs/models/gpt2.json"
    --cluster "${share}/configs/clusters/a100-80g-8.json" --global-batch 16
    --algorithm dp --no-bound --out "${PREFIX}/plan.json")
foreach(file "${share}/schemas/plan.schema.json" "${PREFIX}/share/doc/braid/LICENSE"
        "${PREFIX}/plan.json")
  if(NOT EXISTS "${file}")
    message(FATAL_ERROR "${file} is missing")
  endif()
endforeach()
