#!/usr/bin/env bash
# A long run on one GPU beside the same run in PyTorch:
#
#   benchmarks/long_run.sh OUT TEXT [STEPS]
#
# GPT-2 124M from the same random weights on the bytes of TEXT, 32 × 1024 tokens a step, in Braid (bf16 and
# fp8) and in PyTorch (benchmarks/torch_twin.py). Leaves losses, step times and memory in OUT;
# benchmarks/plot_losses.py draws them. BRAID (default build/braid), MODEL, BATCH, SEQ, LR (the peak, default
# 6e-4) and FP8=0 may be set; DEVICE=cpu compares in fp32.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=$(realpath -m "${1:?usage: benchmarks/long_run.sh OUT TEXT [STEPS]}")
text=$(realpath "${2:?usage: benchmarks/long_run.sh OUT TEXT [STEPS]}")
steps=${3:-2000}
warmup=$((steps / 20))
model=${MODEL:-benchmarks/models/gpt2-124m.json}
batch=${BATCH:-32} sequence=${SEQ:-1024} rate=${LR:-6e-4}
braid=${BRAID:-build/braid} device=${DEVICE:-cuda}
precision=bf16
if [[ $device == cpu ]]; then precision=fp32 FP8=0; fi
mkdir -p "$out"

say() { printf '== %4d s  %s\n' "$SECONDS" "$*"; }

say "weights"
python3 benchmarks/torch_twin.py weights "$model" "$out/weights"
"$braid" plan --model "$model" --seq "$sequence" --cluster configs/examples/h200.json \
  --global-batch "$batch" --precision "$precision" --out "$out/plan.json" >"$out/plan.txt"

train() { # name flags...
  local name=$1
  shift
  say "braid $name"
  rm -rf "${out:?}/$name"
  "$braid" train --device "$device" --plan "$out/plan.json" --data "text:$text" --weights "$out/weights" \
    --steps "$steps" --lr "$rate" --lr-schedule cosine --lr-warmup "$warmup" --metrics "$out/$name" \
    --log-every 500 "$@" >"$out/$name.txt" 2>&1 || { tail -5 "$out/$name.txt"; exit 1; }
  tail -1 "$out/$name/metrics.jsonl"
}
train bf16
if [[ ${FP8:-1} == 1 ]]; then train fp8 --precision fp8; fi

say "PyTorch"
python3 benchmarks/torch_twin.py train "$model" "$out/weights" "$text" "$out/torch.jsonl" \
  --steps "$steps" --batch "$batch" --seq "$sequence" --warmup "$warmup" --lr "$rate"
say "done"
