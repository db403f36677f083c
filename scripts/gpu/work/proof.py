# SPDX-License-Identifier: MIT
"""What the Python programs here share: how a program says what it found, and how it tells whether Cleave serves it."""
import ctypes
import json

MIB = 1 << 20
GIB = 1 << 30


def preloaded():
    """Is Cleave's library mapped into this process?"""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return "libcleave-preload" in maps.read()


def is_vmm(address):
    """Does the driver say that the block at `address` is made of frames (cuMemCreate)? Those of the driver's own pool and of
    cuMemAlloc are not, so under the default pool this tells who served a block. Asking pins its frames: ask once."""
    cuda = ctypes.CDLL("libcuda.so.1")
    handle = ctypes.c_uint64()
    if cuda.cuMemRetainAllocationHandle(ctypes.byref(handle), ctypes.c_void_p(address)) != 0:
        return False
    return cuda.cuMemRelease(handle) == 0


def report(**found):
    """The line that the conductor reads: the last one counts."""
    print("RESULT " + json.dumps(found | {"preloaded": preloaded()}), flush=True)


def rounds(**commands):
    """For programs that are compared side by side: all are started at once, and each does what the next line on stdin names
    and answers with the dictionary that the function returns. So what drifts (clocks, neighbours) meets all of them alike."""
    print("READY", flush=True)
    while (name := input()) != "end":
        print("ROUND " + json.dumps(commands[name]()), flush=True)
