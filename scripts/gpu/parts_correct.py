# SPDX-License-Identifier: MIT
"""Parts that show that programs compute under Cleave what they compute without it."""
import contextlib
import re
import subprocess

from harness import Failed, Skipped, find_tool, toolkit_libraries

ASYNC = "cudaMallocAsync"


def lines_of(done):
    """What a program printed, without what it reported about itself."""
    return [line for line in done.out.splitlines() if not line.startswith("RESULT ")]


def nothing_wrong(part, done, what):
    part.check(what, done.result and not done.result.get("wrong"), done.result.get("wrong", "it reported nothing"))


def torch(part):
    """Random work with verified contents, on a GPU of its own."""
    done = part.ran("torch_work", [part.setup.python, part.work("torch_work.py"), "--seconds", 60, "--fill", "--alone"])
    found = done.result
    nothing_wrong(part, done, "contents and statistics are right")
    if not found:
        return
    part.note(**found)
    part.check("the stream-ordered backend", found["backend"] == ASYNC, found["backend"])
    part.served(done, found["allocs"])
    part.check("out of memory caught and survived", found["oom_wanted"] >= 8, found["oom_wanted"])
    part.check("graphs captured and replayed", found["captures"] >= 5 and found["replays"] >= 50)
    spread = found["foreign_mib"][1] - found["foreign_mib"][0]
    part.check("total - free - reserved stays the same within 128 MiB", spread <= 128, found["foreign_mib"])
    part.check("a full device has at most 1 GiB that is not in use", max(found["left_when_full_mib"], default=1 << 30) <= 1024,
               found["left_when_full_mib"])
    part.check("empty_cache gives back what is free, but 256 MiB", found["cached_after_mib"] <= 256, found["cached_after_mib"])
    part.show(f"{found['ops']:,} steps, {found['written_gib']:,} GiB written, {found['oom_wanted']} OOM caught, "
              f"{found['oom_else']} others, {found['replays']} replays, seed {found['seed']}")


def torch_native(part):
    """The same work under --native, with other programs on the GPU; then what only PyTorch's own allocator has."""
    done = part.ran("torch_work", [part.setup.python, part.work("torch_work.py"), "--seconds", 40, "--cap", 16 << 30], "native")
    nothing_wrong(part, done, "contents and statistics are right")
    found = done.result
    part.note(work=found)
    part.check("PyTorch's own allocator", found.get("backend") == "native", found.get("backend"))
    more = part.ran("torch_native", [part.setup.python, part.work("torch_native.py")], "native")
    nothing_wrong(part, more, "tensors between processes, snapshot and MemPool are right")
    part.note(more=more.result)
    part.check("the other process has the library, too", more.result.get("child_preloaded"))
    part.show(f"{found.get('ops', 0):,} steps; {more.result.get('shared', 0)} tensors shared, "
              f"{more.result.get('segments', 0)} segments in the snapshot, {more.result.get('pool_segments', 0)} in the MemPool")


def ipc(part):
    """Raw CUDA IPC between two processes."""
    program = part.compile("ipc.c", "ipc")
    part.ran("ipc plain, without Cleave", [program, "plain", 4], "plain")
    served = part.ran("ipc of both kinds", [program, "both", 12])
    part.served(served, served.result.get("async", 0))
    passed = part.ran("ipc, --native", [program, "plain", 4], "native")
    part.note(**served.result)
    part.check("both processes finish", served.result and passed.result)
    part.show(f"{served.result.get('blocks', 0)} blocks lent and returned in {served.seconds:.0f} s")


def cupy(part):
    """CuPy with both pools."""
    for kind in ("default", "async"):
        done = part.ran(f"cupy {kind}", [part.setup.python, part.work("cupy_work.py"), kind, 12])
        nothing_wrong(part, done, f"{kind}: contents are right")
        part.note(**{kind: done.result})
        if kind == "async":
            part.served(done, done.result.get("ops", 0) // 2)
        part.show(f"{kind} {done.result.get('ops', 0):,} steps")


def jax(part):
    """JAX with cuda_async and with its default."""
    for kind, env in (("cuda_async", {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}), ("default", {})):
        env = env | {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.10"}
        done = part.ran(f"jax {kind}", [part.setup.python, part.work("jax_work.py"), 12], env=env)
        nothing_wrong(part, done, f"{kind}: results are right")
        part.note(**{kind: done.result})
        if kind == "cuda_async":
            part.served(done, done.result.get("ops", 0))
        part.show(f"{kind} {done.result.get('ops', 0)} steps")


def errors_found(done):
    found = re.search(r"ERROR SUMMARY: (\d+) error", done.out + done.err)
    return int(found.group(1)) if found else None


def sanitizer(part):
    """compute-sanitizer over a C++ program; a planted error shows that it looks."""
    checker = [find_tool("compute-sanitizer"), "--tool", "memcheck", "--error-exitcode", 9]
    program = part.compile("runtime.cu", "sanitized")
    plain = part.run("memcheck without Cleave", checker + [program, "brief"], "plain", timeout=60)
    part.note(plain=errors_found(plain))
    if errors_found(plain) != 0:
        raise Skipped(f"compute-sanitizer does not work here: {plain.why()}")
    done = part.ran("memcheck", checker + [program, "brief"])
    part.check("memcheck finds no error", errors_found(done) == 0, errors_found(done))
    nothing_wrong(part, done, "contents are right")
    part.served(done, 250)
    wild = part.run("memcheck of a wild write", checker + [program, "wild"])
    part.check("memcheck finds the planted error", (errors_found(wild) or 0) > 0 and wild.status == 9, errors_found(wild))
    part.note(errors=errors_found(done), planted=errors_found(wild))
    part.show(f"{errors_found(done)} errors (planted error found: {errors_found(wild)})")


def runtime(part):
    """Programs of the CUDA runtime and of contexts: the same output with and without Cleave."""
    libraries = {"LD_LIBRARY_PATH": toolkit_libraries()}
    programs = {
        "static cudart": ("runtime.cu", "runtime_static"),
        "shared cudart": ("runtime.cu", "runtime_shared", "-cudart", "shared"),
        "per-thread default stream": ("runtime.cu", "runtime_per_thread", "--default-stream", "per-thread"),
        "two contexts": ("contexts.c", "contexts"),
    }
    same = 0
    for label, source in programs.items():
        try:
            program = part.compile(*source)
        except Failed as reason:
            part.check(f"{label} compiles", False, reason)
            continue
        plain = part.ran(f"{label}, without Cleave", [program], "plain", env=libraries)
        done = part.ran(label, [program], env=libraries)
        differing = [f"{a!r} became {b!r}" for a, b in zip(lines_of(plain), lines_of(done)) if a != b]
        if len(lines_of(plain)) != len(lines_of(done)):
            differing.append("not as many lines")
        part.served(done, 1000)
        same += part.check(f"{label}: the same output", lines_of(plain) and not differing, "; ".join(differing))
    part.show(f"{same} of {len(programs)} programs print the same")


def device_count():
    with contextlib.suppress(OSError, Skipped):
        listed = subprocess.run([find_tool("nvidia-smi"), "-L"], capture_output=True, text=True, check=False, timeout=60).stdout
        return sum(line.startswith("GPU ") for line in listed.splitlines())
    return 0


def peers(part):
    """Two devices: copies, peer access, NCCL."""
    if device_count() < 2:
        raise Skipped("needs two GPUs")
    program = part.compile("peers.cu", "peers")
    part.run("kernels across devices, without Cleave", [program], "plain")
    done = part.run("kernels across devices", [program])
    part.check("kernels across devices", done.status == 0 and done.result.get("wrong") == 0, done.why())
    work = part.ran("torch copies and NCCL", [part.setup.python, part.work("peers.py"), 15])
    nothing_wrong(part, work, "copies and sums are right")
    part.served(work, work.result.get("copied", 0))
    part.note(kernels=done.result, torch=work.result)
    part.show(f"{work.result.get('copied', 0):,} copies, {sum(work.result.get('all_reduces', []))} all-reduces, "
              f"peer access {done.result.get('can_access')}")


def api(part):
    """cleave_torch.py: a plan's buffers as tensors, regions, stand-ins; by itself and under Cleave."""
    for how in ("plain", "cleave"):
        done = part.ran(how, [part.setup.python, part.work("torch_api.py")], how, env=part.library())
        failed = done.result.get("failed")
        part.check(f"{how}: all holds", failed == [], "; ".join(failed) if failed else done.why())
        part.note(**{how: done.result})
        part.show(f"{how}: {done.result.get('checks', 0)} checks")
