#!/usr/bin/env bash
# One model of each kind under the plans of all algorithms, measured:
#
#   benchmarks/every_kind.sh OUT [NAME...]
#
# 8 NCCL ranks, each with a memory limit that plain data parallelism breaks: an encoder (BERT-Huge-32), an
# encoder-decoder (T5-Large-32), images (ViT-Huge-32), images in stages of four widths (Swin-Huge-32) and a
# decoder (Llama, 1.1 B); or those of them that are named. Measures the machine once and each model's layers,
# then runs every plan. Leaves profiles, results and tables in OUT; a second run goes on where the first one
# ended. BRAID and LAUNCH as for benchmarks/accuracy.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=${1:?usage: benchmarks/every_kind.sh OUT [NAME...]}
shift
braid=${BRAID:-build/braid}
launch=${LAUNCH:-mpirun --allow-run-as-root --oversubscribe --bind-to none}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# name model batch memory
all=(
  "encoder configs/models/bert-huge-32.json 32 6GiB"
  "images configs/models/vit-huge-32.json 64 6GiB"
  "images-in-stages configs/models/swin-huge-32.json 64 7GiB"
  "encoder-decoder configs/models/t5-large-32.json 32 5GiB"
  "decoder configs/examples/llama-1b.json 8 5GiB"
)
names=${*:-encoder encoder-decoder images images-in-stages decoder}
mkdir -p "$out"

say() { printf '== %4d s  %s\n' "$SECONDS" "$*"; }
# shellcheck disable=SC2086
ranks() { $launch -np 8 "$braid" "$@"; }

say "hardware"
[ -e "$out/hardware.json" ] ||
  ranks profile hardware --backend nccl --max-message 256MiB --out "$out/hardware.json" >"$out/hardware.txt" 2>&1
for entry in "${all[@]}"; do
  read -r name model batch memory <<<"$entry"
  [[ " $names " == *" $name "* ]] || continue
  say "$name: layers"
  [ -e "$out/$name.profile.json" ] ||
    ranks profile model --backend nccl --hardware "$out/hardware.json" --model "$model" \
      --global-batch "$batch" --memory "$memory" --out "$out/$name.profile.json" \
      >"$out/$name.profile.txt" 2>&1 || { tail -5 "$out/$name.profile.txt"; continue; }
  say "$name: plans"
  ranks compare --backend nccl --profile "$out/$name.profile.json" --global-batch "$batch" \
    --memory "$memory" --steps 4 --warmup-steps 1 --timeout 30 --out "$out/$name.results.json" \
    --markdown "$out/$name.md" >"$out/$name.txt" 2>&1 || say "$name failed"
  tail -25 "$out/$name.txt"
done
