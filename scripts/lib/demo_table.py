# SPDX-License-Identifier: MIT
"""Prints the JSON documents of `cleave replay` as one table, and one sentence a history made from its numbers.

Usage: demo_table.py DOCUMENT... The exit status is 1 if the policy `cleave` is missing or did not complete a history.
"""
import json
import os
import sys

COLUMNS = ("history", "policy", "peak live", "peak reserved", "reserved/live", "fit", "fit/live", "driver calls",
           "driver time")

GIB = 1 << 30


def gib(size):
    return f"{size / GIB:.2f} GiB"


def seconds(value):
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def calls(policy):
    return sum(policy["driver_calls"].values())


def row(history, live, policy):
    """One line of the table; what a policy that did not complete reached is no result and is left out."""
    if not policy["completed"]:
        return (history, policy["policy"], gib(live), f"failed at event {policy['failed_at_event']}") + ("-",) * 5
    fit = policy.get("fit_bytes")
    return (history, policy["policy"], gib(live), gib(policy["peak_reserved_bytes"]),
            f"{policy['reserved_over_live']:.3f}", gib(fit) if fit else "-",
            f"{policy['fit_over_live']:.3f}" if fit else "-", f"{calls(policy):,}",
            seconds(policy["modelled_driver_s"]))


def listed(items):
    """a / a and b / a, b and c"""
    return " and ".join(filter(None, [", ".join(items[:-1]), items[-1]]))


def times(ratio):
    """Two digits after the point, and a third where two would claim that nothing is lost."""
    return f"{ratio:.2f}" if ratio >= 1.995 else f"{ratio:.3f}"


def compared(policies):
    """(name in a sentence, policy): the settings the program ran under, the best of PyTorch's others, and Cleave."""
    by_name = {policy["policy"]: policy for policy in policies}
    found = []
    recorded = by_name.pop("torch:recorded", None)
    cleave = by_name.pop("cleave", None)
    others = [policy for name, policy in by_name.items() if name.split(":")[0] == "torch" and policy["completed"]]
    if recorded:
        found.append(("PyTorch with the recorded settings", recorded))
    if others:
        best = min(others, key=lambda policy: policy["peak_reserved_bytes"])
        found.append((f"PyTorch with the best setting tried ({best['policy']})", best))
    if cleave:
        found.append(("Cleave", cleave))
    return found


def sentence(history, live, policies):
    held, fits = [], []
    for name, policy in compared(policies):
        if not policy["completed"]:
            held.append(f"{name} did not complete")
            continue
        held.append(f"{name} held {gib(policy['peak_reserved_bytes'])} ({times(policy['reserved_over_live'])} times as much)")
        if policy.get("fit_bytes"):
            fits.append(gib(policy["fit_bytes"]))
    text = f"{history}: at most {gib(live)} were live at once; for that, {listed(held)}"
    # In the order of those that completed, so the list is only understood where all did.
    if fits and len(fits) == len(held):
        text += f"; the smallest device on which each completes has {listed(fits)}"
    return text + "."


def print_table(rows):
    widths = [max(len(line[column]) for line in rows) for column in range(len(COLUMNS))]
    for number, line in enumerate(rows):
        print("  ".join(cell.ljust(width) if column < 2 else cell.rjust(width)
                        for column, (cell, width) in enumerate(zip(line, widths))).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def main():
    rows = [COLUMNS]
    sentences = []
    good = True
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as document:
            replay = json.load(document)
        history = os.path.splitext(os.path.basename(replay["trace"]["file"]))[0]
        live = replay["trace"]["peak_live_bytes"]
        rows += [row(history, live, policy) for policy in replay["policies"]]
        sentences.append(sentence(history, live, replay["policies"]))
        good = good and any(policy["policy"] == "cleave" and policy["completed"] for policy in replay["policies"])
    print_table(rows)
    print()
    for text in sentences:
        print(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
