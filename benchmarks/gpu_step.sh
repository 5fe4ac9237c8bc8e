#!/usr/bin/env bash
# The training step on one GPU beside what a user would pick instead:
#
#   benchmarks/gpu_step.sh OUT [BASELINES]
#
# Builds for the GPU of this machine, runs the tests of the kernels, then `braid bench step` for five
# models. BASELINES is a folder with gpu_baseline.py and gpu_limit.py, which print a JSON line for
# each of the same models; without it only Braid is timed. Everything is left in the folder OUT.
# MODELS, GRADIENTS (the precisions of gradients, default "fp32 bf16"), BUILD (default build/gpu) and BASELINE_KINDS
# may be set; BRAID names a program that is built already, and then nothing is built or tested.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out=$(realpath -m "${1:?usage: benchmarks/gpu_step.sh OUT [BASELINES]}")
baselines=${2:+$(realpath "$2")}
build=${BUILD:-build/gpu}
# model batch sequence the-faster-baseline
all=(
  "llama-7b-8l 4 4096 plain-compile"
  "llama-1b 4 4096 plain-compile"
  "gpt2-124m 32 1024 hf-compile"
  "llama-8b-8l-8k 2 8192 plain-compile"
  "gpt2-xl 16 1024 hf-compile"
)
models=${MODELS:-"llama-7b-8l llama-1b gpt2-124m llama-8b-8l-8k gpt2-xl"}
mkdir -p "$out"

say() { printf '== %4d s  %s\n' "$SECONDS" "$*"; }

build_and_test() {
  say "build"
  architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
  cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBRAID_CUDA=ON \
    -DBRAID_CUDA_ARCHITECTURES="$architecture" >"$out/configure.log" 2>&1 ||
    { tail -20 "$out/configure.log"; exit 1; }
  ninja -C "$build" ops_test train_test braid >"$out/build.log" 2>&1 ||
    { grep -A5 -m5 error "$out/build.log"; exit 1; }

  say "tests of the kernels"
  for tests in "ops_test *Cuda*:*Attention*:*Linear*:*Norm*" "train_test *CudaTrain*"; do
    read -r program filter <<<"$tests"
    timeout 90 "$build/tests/$program" --gtest_brief=1 --gtest_filter="$filter" \
      >"$out/$program.log" 2>&1 || say "some tests fail: $out/$program.log"
    tail -15 "$out/$program.log"
  done
}
if [[ -z ${BRAID:-} ]]; then build_and_test; fi
braid=${BRAID:-$build/braid}

for entry in "${all[@]}"; do
  read -r model batch sequence kind <<<"$entry"
  [[ " $models " == *" $model "* ]] || continue
  for gradients in ${GRADIENTS:-fp32 bf16}; do
    say "braid $model, gradients in $gradients"
    run=$out/$model.$gradients
    timeout 90 "$braid" bench step --device cuda --model "benchmarks/models/$model.json" \
      --global-batch "$batch" --seq "$sequence" --gradients "$gradients" --out "$run.json" 2>&1 | tee "$run.txt" ||
      say "braid $model failed"
  done
  [[ -n $baselines ]] || continue
  say "baseline $model"
  timeout 240 python3 "$baselines/gpu_baseline.py" "$model" "${BASELINE_KINDS:-$kind}" 2>&1 |
    grep '^{' | tee -a "$out/baselines.jsonl" || say "baseline $model failed"
done
if [[ -n $baselines ]]; then
  say "limit"
  timeout 60 python3 "$baselines/gpu_limit.py" 2>&1 | grep '^{' | tee "$out/limit.jsonl" || true
fi

say "table"
python3 - "$out" <<'PYTHON'
import json, pathlib, sys

out = pathlib.Path(sys.argv[1])
baselines = {}
if (out / "baselines.jsonl").exists():
    for line in (out / "baselines.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "ms" in row:
            best = baselines.get(row["model"])
            baselines[row["model"]] = row if best is None or row["ms"] < best["ms"] else best
print("| model | gradients | ms | tokens/s | MFU | peak GiB | of the limit | baseline ms | times faster | of its memory |")
print("|---|---|---|---|---|---|---|---|---|---|")
for file in sorted(out.glob("*.*.json")):
    run, (name, gradients) = json.loads(file.read_text()), file.stem.rsplit(".", 1)
    if run.get("format") != "braid.bench_step":
        continue
    gib = run.get("peak_bytes", 0) / 2**30
    base = baselines.get(name)
    beside = (f"{base['ms']} | {base['ms'] / run['seconds'] / 1e3:.2f} | {gib / base['peak_gib']:.2f}"
              if base else "– | – | –")
    print(f"| {name} | {gradients} | {run['seconds'] * 1e3:.1f} | {run['tokens_per_second']:.0f} | "
          f"{run.get('mfu', 0) * 100:.1f}% | {gib:.1f} | {run['of_limit'] * 100:.1f}% | {beside} |")
PYTHON
say "done"
