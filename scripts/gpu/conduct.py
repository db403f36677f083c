# SPDX-License-Identifier: MIT
"""Runs the parts of the proof that were asked for, and prints a table of what they found. Called by `inject`."""
import argparse
import concurrent.futures
import datetime
import os
import subprocess
import sys
import tempfile
import time
import traceback

import parts_correct
import parts_measure
import parts_plan
from harness import Failed, Part, Setup, Skipped

# Name, function, seconds it may take (with --long), and whether it runs beside its neighbours in this list that may, too:
# what does not measure, and does not look at what the whole device has free.
PARTS = (
    ("torch", parts_correct.torch, 130, 130, False),
    ("torch-native", parts_correct.torch_native, 170, 170, True),
    ("ipc", parts_correct.ipc, 100, 100, True),
    ("cupy", parts_correct.cupy, 120, 120, True),
    ("jax", parts_correct.jax, 170, 170, True),
    ("sanitizer", parts_correct.sanitizer, 170, 170, True),
    ("runtime", parts_correct.runtime, 150, 150, True),
    ("api", parts_correct.api, 60, 60, False),
    ("peers", parts_correct.peers, 150, 150, False),
    ("graphs", parts_measure.graphs, 100, 130, False),
    ("bench", parts_measure.bench, 90, 120, False),
    ("record", parts_measure.record, 120, 150, False),
    ("moe", parts_measure.moe, 220, 330, False),
    ("plan", parts_plan.plan, 400, 400, False),
    ("server", parts_measure.server, 185, 320, False),
)
HALVES = {"correct": [name for name, function, *_ in PARTS if function.__module__ == "parts_correct"],
          "measure": [name for name, function, *_ in PARTS if function.__module__ != "parts_correct"]}


def say(text):
    print(text, file=sys.stderr, flush=True)


def perform(name, function, budget, setup):
    """One part; whatever happens in it becomes its result."""
    part = Part(name, setup, budget)
    begin = time.monotonic()
    skipped = ""
    say(f"{name}: starts")
    try:
        function(part)
    except Skipped as reason:
        skipped = str(reason)
    except Failed as reason:
        part.check("the part goes to its end", False, reason)
    except Exception as error: # a fault of the part itself must not stop the others
        setup.log(f"==== {name}\n{traceback.format_exc()}")
        part.check("the part goes to its end", False, f"{type(error).__name__}: {error}")
    failed = [check for check in part.checks if not check["holds"]]
    result = "failed" if failed or not (part.checks or skipped) else "skipped" if skipped else "ok"
    seconds = time.monotonic() - begin
    say(f"{name}: {result}, {seconds:.0f} s")
    document = {"part": name, "result": result, "seconds": round(seconds, 1), "why": skipped,
                "key": part.key, "checks": part.checks, "numbers": part.numbers}
    setup.record(document)
    return document


def in_order(chosen, setup):
    """Part after part; a run of parts that may run beside each other together."""
    documents = {}
    chosen = list(chosen)
    while chosen:
        together = [chosen.pop(0)]
        while together[0][4] and chosen and chosen[0][4]:
            together.append(chosen.pop(0))
        with concurrent.futures.ThreadPoolExecutor(len(together)) as pool:
            for document in pool.map(lambda entry: perform(entry[0], entry[1], entry[3 if setup.long else 2], setup), together):
                documents[document["part"]] = document
    return documents


def table(documents):
    rows = [("part", "result", "seconds", "what was found")]
    for document in documents.values():
        texts = list(document["key"])
        if document["why"]:
            texts.append(document["why"])
        failed = [check for check in document["checks"] if not check["holds"]]
        holds = len(document["checks"]) - len(failed)
        if document["checks"]:
            texts.insert(0, f"{holds} of {len(document['checks'])} checks hold")
        texts += [f"FAILED {check['what']}" + (f": {check['detail']}" if check["detail"] else "") for check in failed]
        for number, text in enumerate(texts or ["nothing"]):
            first = number == 0
            rows.append((document["part"] if first else "", document["result"] if first else "",
                         f"{document['seconds']:.0f}" if first else "", text))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    rows.insert(1, tuple("-" * width for width in widths) + ("-" * 14,))
    for row in rows:
        print(f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}")


def about(setup):
    """What this was measured on."""
    found = {"date": datetime.date.today().isoformat()}
    for name, command in (("gpu", ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]),
                          ("cleave", [setup.cleave, "--version"]),
                          ("python", [setup.python, "-c", "import importlib.metadata as m\nfor n in ('torch', 'transformers', "
                                      "'cupy-cuda13x', 'jax'):\n try: print(n, m.version(n))\n except Exception: pass"])):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            found[name] = ", ".join(filter(None, done.stdout.splitlines()))
        except (OSError, subprocess.TimeoutExpired):
            found[name] = "unknown"
    setup.record({"about": found})
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cleave", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--moe-convert")
    parser.add_argument("parts", nargs="*")
    args = parser.parse_args()
    names = [name for name, *_ in PARTS]
    chosen = set()
    for name in args.parts or names:
        if name not in names and name not in HALVES:
            say(f"inject: there is no part '{name}' (parts: {', '.join(names)}; halves: {', '.join(HALVES)})")
            return 2
        chosen.update(HALVES.get(name, [name]))
    os.makedirs(args.out, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        setup = Setup(args.cleave, args.out, scratch, args.long, args.moe_convert)
        found = about(setup)
        documents = in_order([entry for entry in PARTS if entry[0] in chosen], setup)
    table(documents)
    print("measured on " + "; ".join(f"{name} {value}" for name, value in found.items()))
    print(f"log and results: {args.out}")
    return 1 if any(document["result"] == "failed" for document in documents.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
