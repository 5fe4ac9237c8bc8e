#!/usr/bin/env python3
"""A Braid run's twin in PyTorch: transformers' model under torch.compile, from the same weights, on the
same samples in the same order, with the same optimizer.

    benchmarks/torch_twin.py weights CONFIG FOLDER
    benchmarks/torch_twin.py train CONFIG FOLDER TEXT LOSSES --steps N --batch N --seq N

The first writes random weights to FOLDER/model.safetensors, for `braid train --weights FOLDER`. The
second trains from them on the bytes of TEXT and writes a line of JSON a step to LOSSES: loss, seconds,
bytes that PyTorch has handed out. bf16 by autocast over fp32 weights. Needs torch and transformers.
"""

import argparse
import json
import math
import time

import torch
import transformers

MASK = (1 << 64) - 1


def mix(x):
    """SplitMix64's finaliser, as runtime/train/permutation.h."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def mix2(key, x):
    return mix(mix(key) ^ x)


class Order:
    """Which sample stands at a position of the run, as runtime/train/data.cpp has it."""

    def __init__(self, samples, seed):
        self.samples, self.seed = samples, seed
        self.half = ((samples - 1).bit_length() + 1) // 2

    def encrypt(self, x, key):
        mask = (1 << self.half) - 1
        left, right = x >> self.half, x & mask
        for turn in range(10):
            left, right = right, left ^ (mix2((key + turn) & MASK, right) & mask)
        return left << self.half | right

    def at(self, position):
        epoch, x = divmod(position, self.samples)
        key = mix2(self.seed, epoch)
        x = self.encrypt(x, key)
        while x >= self.samples:
            x = self.encrypt(x, key)
        return x


def build(config, device):
    with open(config) as file:
        fields = json.load(file)
    name = fields.pop("model_type")
    made = transformers.AutoConfig.for_model(name, **fields)
    for key in ("attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout"):
        if hasattr(made, key):
            setattr(made, key, 0.0)
    made.use_cache = False
    torch.manual_seed(0)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(made, attn_implementation="sdpa").float()


def rate_at(step, args):
    """Warm-up, then a cosine to zero, as runtime/train/learning_rate.cpp."""
    if step < args.warmup:
        return args.lr * (step + 1) / (args.warmup + 1)
    p = (step - args.warmup) / (args.steps - args.warmup)
    return args.lr * 0.5 * (1 + math.cos(math.pi * p))


def train(args):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build(args.config, device)
    from safetensors.torch import load_file

    model.load_state_dict(load_file(args.folder + "/model.safetensors"), strict=False)
    decayed = [p for n, p in model.named_parameters() if p.dim() > 1]
    others = [p for n, p in model.named_parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=args.lr, betas=(0.9, 0.95), eps=1e-8, fused=device == "cuda")
    with open(args.text, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
    order = Order((len(text) - 1) // args.seq, args.seed)
    step_model = torch.compile(model) if device == "cuda" else model
    with open(args.losses, "w") as out:
        for step in range(args.steps):
            begins = [order.at(step * args.batch + i) * args.seq for i in range(args.batch)]
            rows = torch.stack([text[b:b + args.seq + 1] for b in begins]).to(device).long()
            begin = time.time()
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step, args)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                logits = step_model(input_ids=rows[:, :-1]).logits
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(),
                                                         rows[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            value = loss.item()
            held = torch.cuda.max_memory_allocated() if device == "cuda" else 0
            out.write(json.dumps({"step": step, "loss": value, "seconds": time.time() - begin,
                                  "allocated_bytes": held}) + "\n")
            if step % 200 == 0:
                print(f"step {step}: loss {value:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    weights = verbs.add_parser("weights")
    run = verbs.add_parser("train")
    for verb in (weights, run):
        verb.add_argument("config")
        verb.add_argument("folder")
    run.add_argument("text")
    run.add_argument("losses")
    run.add_argument("--steps", type=int, required=True)
    run.add_argument("--batch", type=int, required=True)
    run.add_argument("--seq", type=int, required=True)
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--lr", type=float, default=6e-4)
    run.add_argument("--warmup", type=int, default=100)
    args = parser.parse_args()
    if args.verb == "weights":
        build(args.config, "cpu").save_pretrained(args.folder, safe_serialization=True)
    else:
        train(args)


if __name__ == "__main__":
    main()
