# Sourced by the other scripts: makes the repository's root the current folder, and runs steps that
# are quiet unless they fail.
# shellcheck shell=bash

cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=$(nproc)

# step NAME COMMAND...: runs a command, its output in build/logs/NAME.log, shown if it fails.
step() {
  local name=$1 begin=$SECONDS status=0
  local log=build/logs/$name.log
  shift
  mkdir -p build/logs
  printf '%s: ' "$name"
  "$@" >"$log" 2>&1 || status=$?
  if ((status != 0)); then
    echo
    cat "$log"
    echo "$name: failed (status $status) after $((SECONDS - begin)) s; the command was: $*"
    exit "$status"
  fi >&2
  echo "$((SECONDS - begin)) s"
}
