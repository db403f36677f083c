# SPDX-License-Identifier: MIT
"""How parts of the proof run programs, with and without Cleave, and say what they found."""
import contextlib
import dataclasses
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

WORK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "work")

# What would change which allocator a program gets, or how it behaves, must come from the part and not from the caller.
UNSET = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CLEAVE_CONF", "XLA_PYTHON_CLIENT_ALLOCATOR",
         "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION")
# NVLink multicast can put GPUs out of service that others use, too; nothing here needs it.
SET = {"PYTHONUNBUFFERED": "1", "NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


class Failed(Exception):
    """The part cannot go on: what it was to show does not hold."""


class Skipped(Exception):
    """The part needs something that is not here."""


@dataclasses.dataclass
class Done:
    label: str
    status: int
    timed_out: bool
    out: str
    err: str
    seconds: float

    @property
    def result(self):
        """What the program reported (its last line RESULT), or nothing."""
        return last_json(self.out, "RESULT ") or {}

    @property
    def served(self):
        """What Cleave says that it did (--stats), over all processes and devices."""
        found = {"processes": 0, "allocations": 0, "failures": 0, "created": 0, "released": 0, "moved": 0}
        for line in self.err.splitlines():
            if re.match(r"cleave: process \d+, device \d+: ", line):
                found["processes"] += 1
                for number, name in re.findall(r"(\d+) (allocations|failures|created|released|moved)", line):
                    found[name] += int(number)
        return found

    def why(self):
        end = "ran out of time" if self.timed_out else f"ended with status {self.status}"
        lines = [line.strip() for line in self.err.splitlines() if line.strip() and not line.startswith("cleave")]
        return f"{self.label} {end}" + (f": {' / '.join(lines[-2:])[:300]}" if lines else "")


def last_json(text, prefix="{"):
    """The document of the last line that begins so."""
    for line in reversed(text.splitlines()):
        if line.startswith(prefix):
            with contextlib.suppress(ValueError):
                return json.loads(line[line.index("{"):])
    return None


class Setup:
    """Where things are, and the one log."""

    def __init__(self, cleave, out, scratch, long=False, moe=None):
        self.cleave, self.out, self.scratch, self.long, self.moe = cleave, out, scratch, long, moe
        self.python = sys.executable
        self.lock = threading.Lock()

    def log(self, text):
        with self.lock, open(os.path.join(self.out, "inject.log"), "a", encoding="utf-8") as file:
            file.write(text)

    def record(self, document):
        with self.lock, open(os.path.join(self.out, "inject.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(document) + "\n")


def stop(process):
    """Ends a program that we started, and what it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
            if number == signal.SIGTERM:
                continue # its children may still be there
            return


class Part:
    def __init__(self, name, setup, budget):
        self.name, self.setup = name, setup
        self.end = time.monotonic() + budget
        self.checks, self.numbers, self.key = [], {}, []

    # What was found

    def check(self, what, holds, detail=""):
        self.checks.append({"what": what, "holds": bool(holds), "detail": str(detail)})
        return bool(holds)

    def note(self, **numbers):
        self.numbers |= numbers

    def show(self, text):
        """A key number, for the table."""
        self.key.append(text)

    # Programs

    def work(self, name):
        return os.path.join(WORK, name)

    def left(self):
        left = self.end - time.monotonic()
        if left <= 1:
            raise Failed("the part ran out of time")
        return left

    def command(self, command, how):
        """how: plain (without Cleave), cleave, native (Cleave under PyTorch's own allocator), plan:FILE (with that plan),
        trace:FILE (recorded into it), observe:FILE (the same, with nothing served)."""
        how, _, file = how.partition(":")
        options = {"plain": None, "cleave": [], "native": ["--native"], "plan": ["--plan", file], "trace": ["--trace", file],
                   "observe": ["--observe", "--trace", file]}[how]
        wrapped = [self.setup.cleave, "run", "--stats", *options, "--"] if options is not None else []
        return wrapped + [str(word) for word in command]

    def library(self):
        """The environment in which scripts/cleave_torch.py finds libcleave.so of the same build."""
        path = os.path.join(os.path.dirname(self.setup.cleave), "src", "libcleave.so")
        if not os.path.exists(path):
            raise Skipped(f"needs {path}")
        return {"CLEAVE_LIBRARY": path}

    def environment(self, extra):
        kept = {name: value for name, value in os.environ.items() if name not in UNSET}
        return kept | SET | (extra or {})

    def log(self, done, command):
        self.setup.log(f"==== {self.name}: {done.label}: {' '.join(command)}\n{done.out}---- stderr\n{done.err}"
                       f"---- status {done.status}{', out of time' if done.timed_out else ''}, {done.seconds:.1f} s\n")

    def run(self, label, command, how="cleave", env=None, timeout=600):
        command = self.command(command, how)
        begin = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                                           env=self.environment(env))
            except OSError as error:
                raise Failed(f"{command[0]}: {error.strerror}") from error
            timed_out = False
            try:
                process.wait(min(timeout, self.left()))
            except subprocess.TimeoutExpired:
                timed_out = True
            finally:
                stop(process)
            done = Done(label, process.returncode, timed_out, text_of(out), text_of(err), time.monotonic() - begin)
        self.log(done, command)
        return done

    def ran(self, label, command, how="cleave", **more):
        """run(), and that it ended well and that Cleave was there exactly if it was to be."""
        done = self.run(label, command, how, **more)
        self.check(f"{label} ends well", done.status == 0 and not done.timed_out, "" if done.status == 0 else done.why())
        if how == "plain":
            self.check(f"{label}: the library is not loaded", not done.result.get("preloaded"))
            return done
        self.check(f"{label}: the library is loaded", done.result.get("preloaded"))
        self.numbers.setdefault("served", {})[label] = done.served
        return done

    def served(self, done, requests):
        """Cleave served (at least) so many requests."""
        self.check(f"{done.label}: Cleave served its requests", done.served["allocations"] >= requests > 0,
                   f"{done.served['allocations']} of {requests}")

    def compile(self, source, program, *options):
        """A program of work/ by nvcc, or by the C compiler for C."""
        target = os.path.join(self.setup.scratch, program)
        source = self.work(source)
        if source.endswith(".c"):
            compiler = [os.environ.get("CC", "cc"), "-O2", "-std=gnu11"]
            tries = [compiler + [source, "-o", target, "-ldl", *options]]
        else:
            nvcc = [find_tool("nvcc"), "-O2", "-std=c++17", *options, source, "-o", target]
            # Code for the GPU at hand, or else what the compiler makes by default.
            tries = [nvcc[:1] + ["-arch=native"] + nvcc[1:], nvcc]
        for command in tries:
            done = self.run(f"compile {program}", command, "plain", timeout=120)
            if done.status == 0:
                return target
        raise Failed(f"{program} does not compile: {done.why()}")


def text_of(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def find_tool(name):
    """A program of the CUDA toolkit: on the path, or where toolkits are installed."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for folder in os.environ.get("PATH", "").split(":") + [os.path.join(home, "bin"), os.path.join(home, "compute-sanitizer")]:
        path = os.path.join(folder, name)
        if folder and os.access(path, os.X_OK):
            return path
    raise Skipped(f"{name} is not installed")


def toolkit_libraries():
    """LD_LIBRARY_PATH with the toolkit's shared libraries."""
    top = os.path.dirname(os.path.dirname(os.path.realpath(find_tool("nvcc"))))
    folders = [os.path.join(top, name) for name in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib")]
    folders = [folder for folder in folders if os.path.isdir(folder)] + [os.environ.get("LD_LIBRARY_PATH", "")]
    return ":".join(filter(None, folders))


class Racer:
    """A program that waits for commands, so that several can be measured in turn. See rounds() in work/proof.py."""

    def __init__(self, part, label, command, how, env):
        self.part, self.label = part, label
        self.command = part.command(command, how)
        self.out, self.lines = [], queue.Queue()
        self.ready = self.ended = None # what it said then
        self.begin = time.monotonic()
        self.err = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.err, text=True,
                                        start_new_session=True, env=part.environment(env))
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.out.append(line)
            self.lines.put(line)
        self.lines.put(None)

    def expect(self, pattern):
        while True:
            try:
                line = self.lines.get(timeout=self.part.left())
            except queue.Empty:
                raise Failed(f"{self.label} does not answer") from None
            if line is None:
                self.process.wait()
                raise Failed(self.done().why())
            if found := re.match(pattern, line):
                return found

    def ask(self, command):
        self.say(command)
        return json.loads(self.expect(r"ROUND (.*)").group(1))

    def say(self, command):
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except OSError:
            pass # it is gone, which the answer will say

    def done(self):
        return Done(self.label, self.process.returncode, False, "".join(self.out), text_of(self.err),
                    time.monotonic() - self.begin)


@contextlib.contextmanager
def race(part, entries):
    """entries: {label: (command, how, environment)}. Starts all, waits until all are ready, and ends them after the block;
    then each must have ended well."""
    racers = {}
    try:
        for label, (command, how, env) in entries.items():
            racers[label] = Racer(part, label, command, how, env)
        for racer in racers.values():
            racer.ready = racer.expect(r"READY|PORT (\d+)")
        yield racers
        for racer in racers.values():
            racer.say("end")
        for racer in racers.values():
            try:
                racer.process.wait(min(60, part.left()))
            except subprocess.TimeoutExpired:
                raise Failed(f"{racer.label} does not end") from None
            racer.reader.join(10)
            done = racer.ended = racer.done()
            part.check(f"{racer.label} ends well", done.status == 0, "" if done.status == 0 else done.why())
    finally:
        for racer in racers.values():
            stop(racer.process)
            racer.reader.join(10)
            part.log(racer.done(), racer.command)
            for file in (racer.process.stdin, racer.process.stdout, racer.err):
                with contextlib.suppress(OSError): # what could not be written to one that is gone
                    file.close()
