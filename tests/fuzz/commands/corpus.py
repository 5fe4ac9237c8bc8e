"""Small sound files of every format: what command lines name, and what gets damaged."""

import json
import shutil
import struct
import subprocess

# What a Hugging Face config.json of each family says, at sizes that train in a second.
FAMILIES = {
    "tiny.json": {"model_type": "llama", "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 64,
                  "max_position_embeddings": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
                  "num_key_value_heads": 2, "tie_word_embeddings": False, "vocab_size": 256},
    "hf_gpt2.json": {"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64, "vocab_size": 256,
                     "activation_function": "gelu_new"},
    "hf_bert.json": {"model_type": "bert", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
                     "intermediate_size": 64, "max_position_embeddings": 64, "vocab_size": 256, "hidden_act": "gelu"},
    "hf_t5.json": {"model_type": "t5", "d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 64, "num_layers": 2,
                   "num_decoder_layers": 2, "vocab_size": 256, "n_positions": 64, "feed_forward_proj": "relu",
                   "tie_word_embeddings": True},
    "hf_vit.json": {"model_type": "vit", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
                    "intermediate_size": 64, "image_size": 32, "patch_size": 8, "num_channels": 3, "hidden_act": "gelu"},
    "hf_mixtral.json": {"model_type": "mixtral", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
                        "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 256, "max_position_embeddings": 64,
                        "num_local_experts": 4, "num_experts_per_tok": 2, "hidden_act": "silu", "tie_word_embeddings": False},
}
ONE_NODE = {"format": "braid.cluster", "version": 1, "name": "one node",
            "devices": {"cpu": {"kind": "cpu", "memory": "1GiB", "memory_bandwidth": "20GB/s",
                                "peak": {"bf16": "100GFLOPS", "fp32": "100GFLOPS"}}},
            "nodes": [{"count": 1, "device": "cpu", "devices": 4, "link": {"bandwidth": "5GB/s", "latency": "5us"}}]}
RUNS = {"rows": [{"id": i, "set": "fuzz", "gpu": "a100", "gpus": 8, "time": 1.5 + i} for i in range(4)]}
# Files that command lines make, in this order; a build without the runtime makes fewer.
MADE = [
    ["plan", "--model", "tiny.json", "--cluster", "one_node.json", "--global-batch", "8", "--precision", "fp32", "--seq", "64",
     "--out", "plan.json"],
    ["plan", "--model", "model.json", "--cluster", "cluster.json", "--global-batch", "8", "--algorithm", "pp", "--out",
     "plan_pp.json"],
    ["train", "plan.json", "--steps", "1", "--metrics", "run", "--out", "report.json"],
    ["train", "plan.json", "--steps", "1", "--save", "saved"],
    ["compare", "--model", "tiny.json", "--cluster", "one_node.json", "--global-batch", "8", "--precision", "fp32", "--seq",
     "64", "--algorithms", "dp", "--steps", "1", "--warmup-steps", "0", "--out", "results.json"],
    ["profile", "model", "--model", "tiny.json", "--global-batch", "8", "--ranks", "2", "--limit", "8", "--max-message", "64KiB",
     "--out", "measured.json"],
]


def safetensors():
    tensors, data = {}, b""
    for name, shape in {"model.embed_tokens.weight": [256, 32], "model.norm.weight": [32], "lm_head.weight": [256, 32]}.items():
        count = 1
        for size in shape:
            count *= size
        tensors[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *([0.01] * count))
    header = json.dumps(tensors).encode()
    return struct.pack("<Q", len(header)) + header + data


def indexed_dataset():
    """Megatron-LM's .idx and .bin of 8 documents with 300 tokens of 2 bytes."""
    documents, size = 8, 300
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, documents, documents + 1)
    index += struct.pack(f"<{documents}i", *([size] * documents))
    index += struct.pack(f"<{documents}q", *(2 * size * i for i in range(documents)))
    index += struct.pack(f"<{documents + 1}q", *range(documents + 1))
    tokens = struct.pack(f"<{documents * size}H", *(i % 250 for i in range(documents * size)))
    return index, tokens


def image_dataset():
    """Eight images of 32 x 32 pixels and 3 channels in 2 classes, as docs/file-formats.md has it."""
    count, channels, side, classes = 8, 3, 32, 2
    header = b"BRDIMG01" + struct.pack("<5I", count, channels, side, side, classes)
    labels = struct.pack(f"<{count}I", *(i % classes for i in range(count)))
    return header + labels + bytes(i % 251 for i in range(count * channels * side * side))


def make(folder, program, inputs, environment, limit):
    """Fills `folder`; `inputs` are the sound files of the command-line tests."""
    shutil.copytree(inputs, folder, dirs_exist_ok=True)
    for name, content in {**FAMILIES, "one_node.json": ONE_NODE, "runs.json": RUNS}.items():
        (folder / name).write_text(json.dumps(content))
    index, tokens = indexed_dataset()
    (folder / "tokens.idx").write_bytes(index)
    (folder / "tokens.bin").write_bytes(tokens)
    (folder / "weights.safetensors").write_bytes(safetensors())
    (folder / "book.txt").write_text("again and again\n" * 200)
    (folder / "empty.json").write_text("")
    (folder / "folder").mkdir()
    (folder / "target.json").write_text("{}")
    (folder / "link.json").symlink_to("target.json")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nothing")
    (folder / "pictures.bin").write_bytes(image_dataset())
    for command in MADE:
        done = subprocess.run([program, *command], cwd=folder, env=environment, capture_output=True, timeout=limit, check=False)
        if done.returncode != 0 and b"has no runtime" not in done.stderr:
            print(f"corpus: status {done.returncode} of {' '.join(command)}\n{done.stderr.decode()}")
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
