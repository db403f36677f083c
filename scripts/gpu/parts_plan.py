# SPDX-License-Identifier: MIT
"""The part that proves a plan: a conversion that was planned finishes with as little memory as a static arena needs."""
import json
import os
import shutil

from harness import Failed, Skipped, last_json

MIB = 1 << 20
MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "data", "models", "kimi-k3-nvfp4")
LAYERS = {"prealloc": 66, "reorder": 66, "stack": 65} # as many as the device holds
FEW = 8       # layers with which the floor is looked for; the rest of the memory is taken away, so that it is as scarce
FLOOR_MAX = 32 # MiB


def planned(part, mode, layers):
    """A plan file for so many MoE layers of Kimi-K3's sizes, one rank of eight: of `preallocated`, for all modes. The program's
    stack mode keeps all lists until all are stacked, which is no strategy of the plan's; but its destinations are the same."""
    folder = shutil.copytree(MODEL, os.path.join(part.setup.scratch, f"{mode}-{layers}"))
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    model = config.get("text_config", config)
    model["num_hidden_layers"] = layers + model.get("first_k_dense_replace", 0)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    plan = os.path.join(folder, "plan.json")
    done = part.run(f"{mode}: plan", [part.setup.cleave, "plan", "--model", folder, "--backend", "nvfp4-trtllm", "--tp", 8,
                                      "--strategy", "preallocated", "-o", plan], "plain", timeout=20)
    if done.status != 0:
        raise Failed(f"cleave plan: {done.why()}")
    return plan


def floor_of(part, arena, mode):
    """The least slack in MiB with which the program finishes in a static arena, and the arena's bytes for LAYERS layers."""
    def run(layers, slack, size=None):
        done = part.run(f"{mode}: static arena of {layers} layers, {slack} MiB of slack",
                        [part.setup.python, part.work("static_arena.py"), arena, part.setup.moe, "--layers", layers, "--mode", mode,
                         "--slack-mib", slack], "plain", env={"ARENA_BYTES": str(size)} if size else None, timeout=90)
        finished = (last_json(done.out, '{"result"') or {}).get("result") == "ok"
        return finished, -(-done.result.get("top", 0) // (2 * MIB)) * 2 * MIB

    def search(layers, slacks):
        free, size = run(layers, 256)
        if not free:
            raise Failed(f"{mode}: the static arena does not finish with 256 MiB of slack")
        for slack in slacks:
            if run(layers, slack, size)[0]:
                return slack, size
        raise Failed(f"{mode}: the static arena does not finish with {FLOOR_MAX} MiB of slack")

    least, _ = search(FEW, range(0, FLOOR_MAX + 1, 2))
    return search(LAYERS[mode], range(least, FLOOR_MAX + 1, 2))


def plan(part):
    """Kimi-K3's sizes converted on a full GPU with what a static arena of the same program needs, and 2 MiB."""
    if not part.setup.moe:
        raise Skipped("needs --moe-convert FILE")
    arena = part.compile("static_arena.c", "static_arena.so", "-shared", "-fPIC", "-fvisibility=hidden")
    floors = {}
    for mode, layers in LAYERS.items():
        floor, size = floor_of(part, arena, mode)
        floors[mode] = floor
        slack = floor + 2
        path = planned(part, mode, layers)
        done = part.ran(f"{mode}, {slack} MiB of slack", [part.setup.python, part.work("moe_split.py"), part.setup.moe, "--layers", layers,
                                                          "--mode", mode, "--slack-mib", slack, "--check"], f"plan:{path}", timeout=120)
        found = last_json(done.out, '{"result"') or {}
        failures = done.served["failures"]
        part.note(**{mode: {"floor_mib": floor, "arena_bytes": size, "found": found, "failures": failures}})
        part.check(f"{mode}: finishes, contents right", found.get("result") == "ok", found.get("result", done.why()))
        part.check(f"{mode}: no request failed", found.get("retries") == failures == 0,
                   f"{found.get('retries')} retries, {failures} failures")
        part.show(f"{mode}: {found.get('result')} with {slack} MiB of slack (static arena {floor}), {found.get('convert_s')} s")
    slack = floors["prealloc"] + 2
    done = part.run(f"explicit API, {slack} MiB of slack", [part.setup.python, part.work("plan_api.py"), "--layers", LAYERS["prealloc"],
                                                            "--slack-mib", slack, "--check"], "plain", env=part.library(), timeout=120)
    found = last_json(done.out, '{"result"') or {}
    part.note(api=found)
    part.check("explicit API: finishes, contents right", found.get("result") == "ok", found.get("result", done.why()))
    part.show(f"explicit API: {found.get('result')} with {slack} MiB of slack, {found.get('convert_s')} s")
