"""Random command lines, from the flags that the program itself lists ('braid help --format json')."""

import json
import subprocess

# Values a flag accepts, so that most runs come past the command line. Flags that are not named here
# get values by the type that their help shows.
SENSIBLE = {
    "--model": ["model.json", "model.json", "tiny.json", "hf_gpt2.json", "hf_t5.json", "hf_vit.json", "hf_bert.json",
                "hf_mixtral.json"],
    "--cluster": ["cluster.json", "cluster.json", "one_node.json"],
    "--profile": ["profile.json", "measured.json"],
    "--hardware": ["measured.json", "hardware"],
    "--model-profile": ["profiled"],
    "--layers": ["256:512:4", "256:512:2,256:256:2"],
    "--global-batch": ["8", "8", "16", "4", "12"],
    "--micro-batch": ["8", "2"],
    "--micro-batches": ["1", "2"],
    "--seq": ["64", "128", "512"],
    "--devices": ["2", "4", "1"],
    "--memory": ["8GiB", "512MiB", "40MiB", "1MiB"],
    "--precision": ["bf16", "fp32", "fp8", "plan"],
    "--gradients": ["fp32", "bf16"],
    "--cost": ["measured", "roofline", "galvatron", "analytic"],
    "--algorithm": ["exact", "galvatron", "bmw", "dp", "zero3", "tp", "pp", "megatron-3d"],
    "--algorithms": ["dp", "dp,tp", "exact"],
    "--schedule": ["gpipe", "1f1b", "interleaved", "zero_bubble", "1f1b,gpipe"],
    "--lr-schedule": ["constant", "cosine", "wsd", "wsd:1-sqrt"],
    "--variant": ["plus_minus", "paper", "spatial"],
    "--recompute": ["none", "selective", "full"],
    "--backend": ["in_process", "mpi", "nccl"],
    "--device": ["cpu", "cuda"],
    "--format": ["text", "json"],
    "--data": ["synthetic", "text:book.txt", "lines:book.txt", "megatron:tokens", "images:pictures.bin"],
    "--weights": ["weights.safetensors", "saved"],
    "--on-save-error": ["continue", "stop"],
    "--straggler": ["1:1.2", "50%:1.5", "0:2,1:1.1"],
    "--slowdown": ["1.1:1.3"],
    "--report": ["report.json"],
    "--comparison": ["results.json"],
    "--ranks": ["4", "2", "1"],
    "--steps": ["1", "2", "3"],
    "--set": ["fuzz"],
    "--no-rule": ["unmeasured-squares"],
    "plan": ["plan.json", "plan.json", "plan_pp.json"],
    "plans": ["plan.json", "plan_pp.json"],
    "runs": ["runs.json"],
    "verb": ["plan", "import", "train"],
}
BY_TYPE = {
    "N": ["1", "2", "3", "4", "8"],
    "K": ["2", "3"],
    "X": ["0", "0.1", "1", "3e-4"],
    "P": ["0", "0.1"],
    "ID": ["0", "5"],
    "M": ["1"],
    "SECONDS": ["1", "2", "5"],
    "SIZE": ["1GiB", "64MiB"],
    "PERCENT": ["1", "5"],
}
HOSTILE = ["", " ", "0", "-1", "-0", "1.5", "28.0", "1e3", "1e308", "-1e308", "1e-308", "nan", "inf", "-inf", "2^40",
           "2147483648", "4294967296", "1099511627776", "9223372036854775807", "9223372036854775808",
           "18446744073709551616", "99999999999999999999999999", "0x10", "1,2", ",", ",,", "a,b", ":", "1:", ":1", "1:1:1",
           "%:", "0%:1", "101%:2", "-1:2", "0:nan", "0:1e308", "8GiB", "-8GiB", "0GiB", "1e30GiB", "8XB", "GiB", "9e99", "text",
           "none", "exact", "model.json", "cluster.json", "plan.json", "profile.json", "results.json", "book.txt",
           "weights.safetensors", "no_such_file", "no/such/folder", "folder", "/", ".", "..", "./model.json", "empty.json",
           "/dev/null", "/dev/zero", "/dev/full", "/proc/self/mem", "/proc/self/environ", "loop", "dangling", "text:", "text:no",
           "text:/dev/zero", "lines:", "megatron:", "megatron:no", "images:", "images:model.json", "x" * 300, "y" * 5000,
           "\u00e9\u4e2d\U0001f600", "\udcff\udcfe", "a\nb", "\t", "\x1b[31m", "'; ls", "$(ls)", "%s%n", "{}", "--", "-", "-x",
           "--help", "--format", "@model.json"]
# The program writes to these by intention; what they name may change.
OUTPUTS = {"--out": ["new.json", "folder/new.json", "plan.json", "link.json"], "--trace": ["trace.json"],
           "--plot": ["plot.svg"], "--markdown": ["table.md"], "--metrics": ["metrics", "folder"], "--cache": ["cache"],
           "--save": ["saved", "saved", "kept"]}
# Without these a run goes on for longer than a fuzzer waits.
BOUNDED = {"plan": {"--limit": "3"}, "train": {"--steps": "2", "--timeout": "10"},
           "auto": {"--steps": "1", "--timeout": "10"}, "bench step": {"--steps": "1", "--warmup-steps": "0", "--seq": "64"},
           "compare": {"--steps": "1", "--warmup-steps": "0", "--timeout": "10", "--algorithms": "dp"},
           "profile hardware": {"--limit": "1", "--max-message": "64KiB", "--timeout": "10"},
           "profile model": {"--limit": "1", "--max-message": "64KiB", "--timeout": "10"},
           "validate": {"--cross-validate": "2"}}
# What launchers set. A run under one of them is one rank; those of several ranks find no others.
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29512", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_RUN_ID": "none"}
SBATCH = {"SLURM_JOB_ID": "4711", "SLURM_JOBID": "4711", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0",
          "SLURM_NTASKS": "8", "SLURM_NPROCS": "8", "SLURM_NNODES": "2", "SLURM_NODELIST": "n[1-2]",
          "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "4(x2)", "SLURM_GTIDS": "0"}
SRUN = {**SBATCH, "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0", "SLURM_STEPID": "0", "SLURM_STEP_NODELIST": "n2",
        "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_STEP_NUM_NODES": "1"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
          "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
LAUNCHERS = [TORCHRUN, SBATCH, SRUN, MPIRUN, {**SBATCH, **TORCHRUN}, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29513"}]
HOSTILE_VARIABLES = ["", " ", "-1", "x", "1.5", "2147483648", "99999999999999999999", "4294967294", "4(x", "n[", "n[1-999999999]",
                     "[1-2]", "n[1-2],", "0", "7", "y" * 300]
LAUNCHED = 0.08  # of all runs have a launcher's variables, half of them with one that is wrong

# Flags whose large values ask for a large run, not for an error: they keep their sensible values.
COSTLY = {"--steps", "--ranks", "--rounds", "--more", "--threads", "--warmup-steps", "--micro-batches"}
LARGE_COUNT = 64  # of COSTLY flags


class Grammar:
    def __init__(self, program):
        text = subprocess.run([program, "help", "--format", "json"], capture_output=True, check=True).stdout
        self.verbs = {}
        self._add(json.loads(text))
        self.names = sorted({flag for options in self.verbs.values() for option in options for flag in option["flags"]})

    def _add(self, verb):
        for below in verb.get("verbs", []):
            self._add(below)
        if "verbs" not in verb:
            self.verbs[verb["verb"].removeprefix("braid ")] = verb["options"]

    def _value(self, rng, name, kind):
        if name in OUTPUTS and rng.random() < 0.85:
            return rng.choice(OUTPUTS[name])
        if rng.random() < 0.06:
            hostile = rng.choice(HOSTILE)
            if name not in COSTLY or not hostile.isdigit() or int(hostile) <= LARGE_COUNT:
                return hostile
        if name in SENSIBLE:
            return rng.choice(SENSIBLE[name])
        return rng.choice(BY_TYPE.get(kind, ["model.json", "cluster.json", "plan.json", "profile.json"]))

    def _words(self, rng, option):
        """One option as the words of a command line."""
        if not option["takes_value"]:
            return [option["flags"][-1]]
        name = option["flags"][-1] if option["flags"] else option["word"]
        known = option["word"] if option.get("word") in SENSIBLE else name
        value = self._value(rng, known, option["type"])
        if "word" in option and (not option["flags"] or rng.random() < 0.6):
            return [value]
        return [f"{name}={value}"] if rng.random() < 0.1 else [name, value]

    def _noise(self, rng, words):
        kind = rng.randrange(4)
        if kind == 0:
            words.insert(rng.randrange(1, len(words) + 1), rng.choice(HOSTILE))
        elif kind == 1:
            words.insert(rng.randrange(1, len(words) + 1), rng.choice(self.names))
        elif kind == 2:
            del words[rng.randrange(len(words))]
        else:
            at = rng.randrange(len(words))
            letters = list(words[at]) or ["?"]
            letters[rng.randrange(len(letters))] = chr(rng.randrange(33, 127))
            words[at] = "".join(letters)
        return words

    def command(self, rng):
        """A list of options, each a list of words; the first is the verb."""
        verb = rng.choice(sorted(self.verbs))
        options = []
        bounds = dict(BOUNDED.get(verb, {}))
        # Most mistakes end a run at the command line: many runs have few flags, so that they come further.
        optional = rng.choice([0.01, 0.03, 0.12])
        for option in self.verbs[verb]:
            if option["flags"] and option["flags"][-1] in ("--help", "-h") and rng.random() < 0.98:
                continue
            wanted = 0.97 if option["required"] else 0.85 if option["flags"][-1:] in (["--model"], ["--cluster"]) else optional
            for _ in range(2 if rng.random() < 0.03 else 1):
                if rng.random() < wanted:
                    options.append(self._words(rng, option))
        listed = {flag for option in self.verbs[verb] for flag in option["flags"]}
        given = {options[i][0].split("=")[0] for i in range(len(options))}
        options += [[flag, value] for flag, value in bounds.items() if flag in listed and flag not in given]
        rng.shuffle(options)
        if rng.random() < 0.05:
            words = self._noise(rng, [word for option in options for word in option] or ["x"])
            options = [[word] for word in words]
        return [verb.split(" "), *options]


def launcher(rng):
    """Environment variables of a random launcher, or none."""
    if rng.random() >= LAUNCHED:
        return {}
    variables = dict(rng.choice(LAUNCHERS))
    if rng.random() < 0.5:
        name = rng.choice(sorted(variables))
        if rng.random() < 0.3:
            del variables[name]
        else:
            variables[name] = rng.choice(HOSTILE_VARIABLES)
    return variables


def named_outputs(words):
    """What a command line lets the program write: names that follow a flag of OUTPUTS."""
    names = set()
    for i, word in enumerate(words):
        flag, _, value = word.partition("=")
        # A former name counts as well: --json is --out.
        if flag in OUTPUTS or flag == "--json":
            names.add(value or (words[i + 1] if i + 1 < len(words) else ""))
    return names - {""}
