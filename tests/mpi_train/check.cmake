# cmake -DCASE= -DBRAID= -DLAUNCH= -DINPUTS= -DFOLDER= -P check.cmake
# Plans for four ranks, trains under mpirun, and looks at what came out.

file(REMOVE_RECURSE "${FOLDER}")
file(MAKE_DIRECTORY "${FOLDER}")

# Runs a command in the folder; leaves `status` and `output`.
macro(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${FOLDER}" RESULT_VARIABLE status
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message("${output}")
endmacro()
macro(must_run)
  run(${ARGN})
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "status ${status}, not 0")
  endif()
endmacro()
macro(must_fail message)
  run(${ARGN})
  if(status EQUAL 0)
    message(FATAL_ERROR "expected a failure, but the status is 0")
  endif()
  if(NOT output MATCHES "${message}")
    message(FATAL_ERROR "expected a message that matches: ${message}")
  endif()
endmacro()

# Losses and norms of all steps, with all their digits.
function(results_of run result)
  file(STRINGS "${FOLDER}/${run}/metrics.jsonl" lines)
  list(LENGTH lines count)
  if(NOT count EQUAL 3)
    message(FATAL_ERROR "${run} has metrics of ${count} steps, not of 3")
  endif()
  set(found)
  foreach(line IN LISTS lines)
    string(REGEX MATCH "\"loss\":[^,]+,\"gradient_norm\":[^,]+" part "${line}")
    list(APPEND found "${part}")
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

set(plan "${BRAID}" plan --model "${INPUTS}/model.json" --cluster "${INPUTS}/cluster.json" --seq 16
         --precision fp32)
set(train "${BRAID}" train --plan plan.json --timeout 30)
must_run(${plan} --global-batch 8 --out plan.json)

if(CASE STREQUAL "same_bits")
  must_run(${train} --steps 3 --metrics threads)
  must_run(${LAUNCH} -n 4 ${train} --steps 3 --metrics processes)
  results_of(threads expected)
  results_of(processes found)
  if(NOT found STREQUAL expected)
    message(FATAL_ERROR "under mpirun: ${found}\nin one process: ${expected}")
  endif()
elseif(CASE STREQUAL "other_plan")
  must_run(${plan} --global-batch 16 --out other.json)
  must_fail("not the same plan on all 4 ranks: rank 3 differs from most" ${LAUNCH} -n 3 ${train} :
            -n 1 "${BRAID}" train --plan other.json --timeout 30)
elseif(CASE STREQUAL "other_flags")
  must_fail("not the same options on all 4 ranks: rank 0 differs from most" ${LAUNCH} -n 1 ${train}
            --lr 1e-3 : -n 3 ${train})
elseif(CASE STREQUAL "killed_rank")
  # Killed long after the first step and long before the last.
  must_fail("step +1/1000000" ${LAUNCH} -n 3 ${train} --steps 1000000 : -n 1 timeout -s KILL 8
            ${train} --steps 1000000)
elseif(CASE STREQUAL "stopped_rank")
  # One rank hears SIGTERM; all of them end after the same step, and rank 0 reports.
  must_fail("Stopped after step [0-9]+ of 1000000 by SIGTERM" ${LAUNCH} -n 3 ${train} --steps
            1000000 --out report.json : -n 1 timeout -s TERM 6 ${train} --steps 1000000 --out
            report.json)
  file(STRINGS "${FOLDER}/report.json" stopped REGEX "\"stopped_by\": \"SIGTERM\"")
  if(NOT stopped)
    message(FATAL_ERROR "the report does not say what stopped the run")
  endif()
elseif(CASE STREQUAL "stopped_launcher")
  # mpirun hands SIGTERM on and kills a second later: time enough for a step of milliseconds.
  must_fail("Stopped after step [0-9]+ of 1000000 by SIGTERM" timeout -s TERM 6 ${LAUNCH} -n 4
            ${train} --steps 1000000)
elseif(CASE STREQUAL "other_data")
  # Two stages: the same name leads to other bytes on the node of the second one.
  must_run(${plan} --global-batch 8 --devices 2 --algorithm pp --out two.json)
  string(REPEAT "some text " 500 text)
  file(WRITE "${FOLDER}/first/book" "${text} and its end")
  file(WRITE "${FOLDER}/second/book" "${text} and an end")
  set(two "${BRAID}" train --plan "${FOLDER}/two.json" --timeout 30 --data text:book)
  must_fail("not the same data on all 2 ranks: rank 1 differs from most" ${LAUNCH} -n 1 -wdir
            "${FOLDER}/first" ${two} : -n 1 -wdir "${FOLDER}/second" ${two})
elseif(CASE STREQUAL "too_few_ranks")
  must_fail("rank [0-2]: error: 3 ranks for a plan of 4 devices" ${LAUNCH} -n 3 ${train})
else()
  message(FATAL_ERROR "no case is called '${CASE}'")
endif()
