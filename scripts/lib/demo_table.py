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


def needs(policy):
    """What one policy took, as the middle of a sentence."""
    if not policy["completed"]:
        return "did not complete"
    text = f"reserved {gib(policy['peak_reserved_bytes'])} ({policy['reserved_over_live']:.2f} times as much)"
    fit = policy.get("fit_bytes")
    return f"{text} and needs a device of at least {gib(fit)} to complete" if fit else text


def sentence(history, live, policies):
    """Compares the settings that the program ran under, where the file has them, with the best of the others."""
    by_name = {policy["policy"]: policy for policy in policies}
    torch = by_name.get("torch:recorded") or by_name.get("torch")
    cleave = by_name.get("cleave")
    parts = [f"{history}: at most {gib(live)} were live at once"]
    if torch:
        parts.append(f"PyTorch under the program's own settings {needs(torch)}")
    if cleave:
        parts.append(f"Cleave {needs(cleave)}")
    text = "; ".join(parts)
    if torch and cleave and torch["completed"] and cleave["completed"]:
        saved = torch["peak_reserved_bytes"] - cleave["peak_reserved_bytes"]
        if saved > 0:
            text += f", with {gib(saved)} less reserved"
        elif saved < 0:
            text += f", with {gib(-saved)} more reserved"
        if calls(torch) and calls(cleave):
            text += (f" and {calls(cleave):,} driver calls instead of {calls(torch):,}")
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
