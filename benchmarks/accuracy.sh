#!/usr/bin/env bash
# Holds predictions against runs, as docs/accuracy.md shows them:
#
#   benchmarks/accuracy.sh cpu OUT [RANKS THREADS]      MPI ranks (default 8 of 2 threads, for 16 cores)
#   benchmarks/accuracy.sh gpu RANKS MEMORY OUT [MORE]  that many NCCL ranks, a memory limit for each
#
# Measures machine and model, then runs the plans of all algorithms and of MORE uniform strategies
# beside their predictions. On CPUs, where ranks share caches and memory with whatever else runs, a rehearsal
# comes between: a few steps of three baselines' plans and three uniform ones, which correct the profile
# (`braid calibrate`). Leaves profile, results and table in the folder OUT; a second run goes on where the
# first one ended. BRAID names the program (default build/braid), LAUNCH what starts the ranks (default
# mpirun); BATCH the samples of a step (default 16 on CPUs, where fewer leave no time to hide sums of gradients, 8
# on GPUs), ROUNDS how often CPU plans take turns (default 3); MODEL what GPUs train (default a Llama of 1.1 B
# parameters).
#
# Ranks that share one GPU need NVIDIA's MPS and an NCCL that allows it; docs/accuracy.md says how.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

braid=${BRAID:-build/braid}
launch=${LAUNCH:-mpirun --allow-run-as-root --oversubscribe --bind-to none}

# measure RANKS BACKEND MODEL BATCH OUT LARGEST FLAGS...
measure() {
  local ranks=$1 backend=$2 model=$3 batch=$4 out=$5 largest=$6
  shift 6
  mkdir -p "$out"
  if [ -e "$out/profile.json" ]; then return; fi
  # shellcheck disable=SC2086
  $launch -np "$ranks" "$braid" profile model --backend "$backend" --model "$model" \
    --global-batch "$batch" --max-message "$largest" "$@" --out "$out/profile.json" | tee "$out/profile.txt"
}

# compare RANKS BACKEND BATCH PROFILE RESULTS FLAGS...
compare() {
  local ranks=$1 backend=$2 batch=$3 profile=$4 results=$5
  shift 5
  # shellcheck disable=SC2086
  $launch -np "$ranks" "$braid" compare --backend "$backend" --profile "$profile" --global-batch "$batch" \
    --warmup-steps 1 --timeout 30 --out "$results" "$@"
}

case ${1:-} in
  cpu)
    export OMP_NUM_THREADS=${4:-2}
    out=${2:?OUT} ranks=${3:-8} batch=${BATCH:-16}
    measure "$ranks" mpi configs/examples/llama-30m.json "$batch" "$out" 32MiB
    compare "$ranks" mpi "$batch" "$out/profile.json" "$out/rehearsal.json" --algorithms zero3,tp,pp --more 3 --steps 3
    "$braid" calibrate --profile "$out/profile.json" --comparison "$out/rehearsal.json" \
      --out "$out/calibrated.json" | tee "$out/calibrated.txt"
    compare "$ranks" mpi "$batch" "$out/calibrated.json" "$out/results.json" --more 14 --steps 2 --rounds "${ROUNDS:-3}" \
      --markdown "$out/table.md"
    ;;
  gpu)
    export OMP_NUM_THREADS=1
    out=${4:?OUT} batch=${BATCH:-8}
    measure "${2:?RANKS}" nccl "${MODEL:-configs/examples/llama-1b.json}" "$batch" "$out" 1GiB \
      --memory "${3:?MEMORY}"
    compare "$2" nccl "$batch" "$out/profile.json" "$out/results.json" --memory "$3" --more "${5:-10}" \
      --steps 4 --markdown "$out/table.md"
    ;;
  *)
    sed -n '2,/^set/p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//; /^set/d'
    exit 2
    ;;
esac
