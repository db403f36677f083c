# SPDX-License-Identifier: MIT
"""Adds up the test logs of several Meson runs.

Usage: test_summary.py RESULTS. Each line of RESULTS is LABEL<tab>PATH of a testlog.json, or LABEL<tab>!REASON<tab>SECONDS
for a run that never got so far (counts as a failure) or LABEL<tab>?REASON for one that is skipped. The last line printed
is "N passed, M failed, K skipped", in Meson's tests; the exit status is 1 if any failed or if none ran.
"""
import json
import re
import sys

# What a Check program prints when it ends; its checks are told beside Meson's tests, not added to them.
CHECKS = re.compile(r"^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)$", re.MULTILINE)

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP", "IGNORED"}


def read_log(path):
    """One JSON object a line, one line a test. A test that was interrupted has no result we count as passed."""
    with open(path, encoding="utf-8", errors="replace") as log:
        return [json.loads(line) for line in log if line.strip()]


def main():
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    failures = []
    with open(sys.argv[1], encoding="utf-8") as results:
        runs = [line.rstrip("\n").split("\t", 1) for line in results]

    print()
    for label, source in runs:
        counts = {"passed": 0, "failed": 0, "skipped": 0}
        checks = 0
        if source[0] == "?":
            counts["skipped"] = 1
            print(f"{label}: skipped: {source[1:]}")
        elif source[0] == "!":
            counts["failed"] = 1
            failures.append(f"{label}: {source[1:]}")
        else:
            try:
                tests = read_log(source)
            except (OSError, ValueError) as error:
                tests = []
                counts["failed"] = 1
                failures.append(f"{label}: the log of the run cannot be read: {error}")
            for test in tests:
                result = test.get("result", "no result")
                kind = "passed" if result in PASSED else "skipped" if result in SKIPPED else "failed"
                counts[kind] += 1
                checks += sum(int(found[0]) for found in CHECKS.findall(test.get("stdout") or ""))
                if kind == "failed":
                    failures.append(f"{label}: {test.get('name')}: {result}")
            print(f"{label}: {counts['passed']} of {sum(counts.values())} tests passed ({checks} checks of Check in them), "
                  f"{counts['failed']} failed, {counts['skipped']} skipped, "
                  f"{sum(float(test.get('duration') or 0) for test in tests):.0f} s of test time")
        for kind, count in counts.items():
            totals[kind] += count

    for failure in failures:
        print(f"FAILED {failure}")
    ran = totals["passed"] + totals["failed"]
    if ran == 0:
        print("no test ran")
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 1 if failures or totals["failed"] or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
