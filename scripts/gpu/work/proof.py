# SPDX-License-Identifier: MIT
"""What the Python programs here share: how a program says what it found."""
import json

MIB = 1 << 20
GIB = 1 << 30


def preloaded():
    """Is Cleave's library mapped into this process?"""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return "libcleave-preload" in maps.read()


def report(**found):
    """The line that the conductor reads: the last one counts."""
    print("RESULT " + json.dumps(found | {"preloaded": preloaded()}), flush=True)


def rounds(**commands):
    """For programs that are compared side by side: all are started at once, and each does what the next line on stdin names
    and answers with the dictionary that the function returns. So what drifts (clocks, neighbours) meets all of them alike."""
    print("READY", flush=True)
    while (name := input()) != "end":
        print("ROUND " + json.dumps(commands[name]()), flush=True)
