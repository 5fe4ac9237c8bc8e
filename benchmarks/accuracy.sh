#!/usr/bin/env bash
# Holds predictions against runs, as docs/accuracy.md shows them:
#
#   benchmarks/accuracy.sh cpu OUT                      8 MPI ranks of 2 threads, 16 cores
#   benchmarks/accuracy.sh gpu RANKS MEMORY OUT [MORE]  that many NCCL ranks, a memory limit for each
#
# Measures machine and model, then runs the plans of all algorithms and of MORE uniform strategies
# beside their predictions. Leaves profile, results and table in the folder OUT; a second run goes
# on where the first one ended. BRAID names the program (default build/braid), LAUNCH what starts the
# ranks (default mpirun); MODEL and BATCH what GPUs train (default a Llama of 1.1 B parameters, 8 samples).
#
# Ranks that share one GPU need NVIDIA's MPS and an NCCL that allows it; docs/accuracy.md says how.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

braid=${BRAID:-build/braid}
launch=${LAUNCH:-mpirun --allow-run-as-root --oversubscribe --bind-to none}

# measure_and_compare RANKS BACKEND MODEL BATCH MORE OUT STEPS LARGEST FLAGS...
measure_and_compare() {
  local ranks=$1 backend=$2 model=$3 batch=$4 more=$5 out=$6 steps=$7 largest=$8
  shift 8
  mkdir -p "$out"
  # shellcheck disable=SC2086
  if [ ! -e "$out/profile.json" ]; then
    $launch -np "$ranks" "$braid" profile model --backend "$backend" --model "$model" \
      --global-batch "$batch" --max-message "$largest" "$@" --out "$out/profile.json" | tee "$out/profile.txt"
  fi
  # shellcheck disable=SC2086
  $launch -np "$ranks" "$braid" compare --backend "$backend" --profile "$out/profile.json" \
    --global-batch "$batch" "$@" --more "$more" --steps "$steps" --warmup 1 --timeout 30 \
    --out "$out/results.json" --markdown "$out/table.md"
}

case ${1:-} in
  cpu)
    export OMP_NUM_THREADS=2
    measure_and_compare 8 mpi configs/examples/llama-30m.json 8 18 "${2:?OUT}" 3 32MiB
    ;;
  gpu)
    export OMP_NUM_THREADS=1
    measure_and_compare "${2:?RANKS}" nccl "${MODEL:-configs/examples/llama-1b.json}" "${BATCH:-8}" "${5:-10}" \
      "${4:?OUT}" 4 1GiB --memory "${3:?MEMORY}"
    ;;
  *)
    sed -n '2,/^set/p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//; /^set/d'
    exit 2
    ;;
esac
