# SPDX-License-Identifier: MIT
"""driver_table.py FOLDER

Prints a table of NAME.sim.json and NAME.cuda.json, what `cleave replay --policy cleave --json` says of one history on both
devices. Exits 1 if a replay is missing or has not completed, or if the heap held more on the GPU than its choices by time
explain (a fifth)."""
import glob
import json
import os
import sys

MIB = 1 << 20
CALLS = ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuEventRecord", "cuEventQuery"]


def load(path):
    try:
        with open(path, encoding="utf-8") as f:
            return json.load(f)["policies"][0]
    except (OSError, ValueError, KeyError, IndexError):
        return None


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    bad = False
    head = ["history", "device", "held MiB"] + [c.replace("cuMem", "").replace("cuEvent", "Event") for c in CALLS]
    rows = [head + ["driver ms", "wall ms"]]
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.cuda.json"))):
        name = os.path.basename(path)[: -len(".cuda.json")]
        results = {"sim": load(path.replace(".cuda.json", ".sim.json")), "cuda": load(path)}
        for device, r in results.items():
            if not r or not r["completed"]:
                rows.append([name, device, "not completed"])
                bad = True
                continue
            calls = r["driver_calls"]
            rows.append([name, device, "%.0f" % (r["peak_reserved_bytes"] / MIB)]
                        + ["%d" % calls.get(c, 0) for c in CALLS]
                        + ["%.1f" % (r["modelled_driver_s"] * 1e3), "%.1f" % (r["wall_s"] * 1e3)])
        sim, cuda = results["sim"], results["cuda"]
        if sim and cuda and cuda["peak_reserved_bytes"] > 1.2 * sim["peak_reserved_bytes"]:
            print("%s: held %d bytes on the GPU, %d when simulated"
                  % (name, cuda["peak_reserved_bytes"], sim["peak_reserved_bytes"]), file=sys.stderr)
            bad = True
    if len(rows) == 1:
        print("no replays", file=sys.stderr)
        bad = True
    widths = [max(len(r[i]) for r in rows if i < len(r)) for i in range(len(rows[0]))]
    for r in rows:
        print("  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths))))
    return 1 if bad else 0


sys.exit(main())
