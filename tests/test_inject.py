# SPDX-License-Identifier: MIT
"""What judges the proof on a GPU (scripts/gpu) must itself be right: a part that fails, hangs or reports nothing must never
count as one that holds. Needs no GPU: programs and `cleave` are small stand-ins. Usage: test_inject.py FOLDER_OF_INJECT"""
import contextlib
import io
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

GPU = sys.argv.pop(1)
sys.path.insert(0, GPU)
import conduct # noqa: E402
import harness # noqa: E402
import parts_measure # noqa: E402

# As `cleave run --stats -- COMMAND` does, as far as a conductor sees.
CLEAVE = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
STANDIN=1 "$@"
status=$?
echo "cleave: process $$, device 0: live 0 B (peak 1.0 MiB), held 2.0 MiB (peak 2.0 MiB), 70 allocations, 70 frees," \\
	"2 failures; frames: 1 created, 0 released, 0 moved; waits: 0 on the device" >&2
exit $status
"""
RESULT = "import json, os\nprint('RESULT ' + json.dumps({'preloaded': 'STANDIN' in os.environ, 'wrong': []}))\n"


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.cleave = self.write("cleave", CLEAVE)
        os.chmod(self.cleave, stat.S_IRWXU)
        self.setup = harness.Setup(self.cleave, self.folder, self.folder)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def part(self, budget=60):
        return harness.Part("part", self.setup, budget)

    def program(self, text):
        return [sys.executable, self.write("program.py", text)]

    def failed(self, part):
        return [check["what"] for check in part.checks if not check["holds"]]


class Programs(Scratch):
    def test_a_good_program_holds(self):
        part = self.part()
        for how in ("plain", "cleave", "native"):
            done = part.ran(how, self.program(RESULT), how)
            self.assertEqual(done.status, 0)
        part.served(done, 70)
        self.assertEqual(self.failed(part), [])
        self.assertEqual(done.served, {"processes": 1, "allocations": 70, "failures": 2, "created": 1, "released": 0, "moved": 0})

    def test_too_few_requests_served(self):
        part = self.part()
        part.served(part.ran("p", self.program(RESULT)), 71)
        self.assertEqual(self.failed(part), ["p: Cleave served its requests"])

    def test_no_requests_is_no_proof(self):
        part = self.part()
        part.served(part.ran("p", self.program(RESULT)), 0)
        self.assertEqual(self.failed(part), ["p: Cleave served its requests"])

    def test_status_is_judged(self):
        part = self.part()
        done = part.ran("p", self.program(RESULT + "import sys\nsys.stderr.write('why\\n')\nsys.exit(3)\n"))
        self.assertEqual(self.failed(part), ["p ends well"])
        self.assertEqual(done.why(), "p ended with status 3: why")

    def test_a_silent_program_was_not_under_cleave(self):
        part = self.part()
        part.ran("p", self.program("pass"))
        self.assertEqual(self.failed(part), ["p: the library is loaded"])

    def test_the_library_where_it_must_not_be(self):
        part = self.part()
        part.ran("p", self.program("print('RESULT {\"preloaded\": true}')"), "plain")
        self.assertEqual(self.failed(part), ["p: the library is not loaded"])

    def test_a_hanging_program_is_ended_with_its_children(self):
        part = self.part()
        begin = time.monotonic()
        mark = os.path.join(self.folder, "child")
        done = part.ran("p", self.program(
            "import subprocess, sys, time\n"
            f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
            f"open({mark!r}, 'w').write(str(child.pid))\n"
            "time.sleep(600)\n"), timeout=3)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertTrue(done.timed_out)
        self.assertIn("p ends well", self.failed(part))
        with open(mark, encoding="utf-8") as file:
            child = int(file.read())
        for _ in range(100):
            # Nobody may be there to collect it: a zombie has ended.
            try:
                with open(f"/proc/{child}/stat", encoding="utf-8") as file:
                    if file.read().rpartition(")")[2].split()[0] == "Z":
                        break
            except OSError:
                break
            time.sleep(0.1)
        else:
            self.fail("the child still runs")

    def test_no_command(self):
        with self.assertRaisesRegex(harness.Failed, "No such file"):
            self.part().run("p", ["/nonexistent/program"], "plain")

    def test_settings_of_the_caller_do_not_reach_programs(self):
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        self.addCleanup(os.environ.pop, "PYTORCH_CUDA_ALLOC_CONF")
        done = self.part().run("p", self.program("import os; print(os.environ.get('PYTORCH_CUDA_ALLOC_CONF'))"), "plain")
        self.assertEqual(done.out, "None\n")


class Races(Scratch):
    TURNS = "import sys\nsys.path.insert(0, sys.argv[1])\nimport proof\n"

    def entry(self, rest):
        return self.program(self.TURNS + rest) + [os.path.join(GPU, "work")]

    def test_turns(self):
        part = self.part()
        command = self.entry("n = 0\ndef go():\n global n\n n += 1\n return {'n': n}\nproof.rounds(go=go)\n"
                             "print('RESULT {\"preloaded\": true}')\n")
        with harness.race(part, {"a": (command, "plain", None), "b": (command, "cleave", None)}) as racers:
            answers = [racers[label].ask("go")["n"] for label in ("a", "b", "b", "a")]
        self.assertEqual(answers, [1, 1, 2, 2])
        self.assertEqual(self.failed(part), [])
        self.assertEqual(racers["b"].ended.served["allocations"], 70)

    def test_one_that_dies(self):
        command = self.entry("def go():\n raise SystemExit('broken')\nproof.rounds(go=go)\n")
        with self.assertRaisesRegex(harness.Failed, "a ended with status 1: broken"):
            with harness.race(self.part(), {"a": (command, "plain", None)}) as racers:
                racers["a"].ask("go")

    def test_one_that_ends_badly(self):
        part = self.part()
        with harness.race(part, {"a": (self.entry("proof.rounds()\nsys.exit(4)\n"), "plain", None)}):
            pass
        self.assertEqual(self.failed(part), ["a ends well"])

    def test_one_that_does_not_answer(self):
        with self.assertRaisesRegex(harness.Failed, "a does not answer|out of time"):
            with harness.race(self.part(4), {"a": (self.entry("import time\ntime.sleep(600)\n"), "plain", None)}):
                pass


class Conduct(Scratch):
    def table(self, *parts):
        documents = conduct.in_order([(name, function, 60, 60, beside) for name, function, beside in parts], self.setup)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            conduct.table(documents)
        return {name: document["result"] for name, document in documents.items()}, printed.getvalue()

    def setUp(self):
        super().setUp()
        silence = contextlib.redirect_stderr(io.StringIO())
        silence.__enter__()
        self.addCleanup(silence.__exit__, None, None, None)

    def test_every_way_to_end(self):
        def good(part):
            part.check("something", True)
            part.show("42 things")

        def bad(part):
            part.check("this", False, "since 1 is not 2")
            part.check("that", True)

        def broken(part):
            part.check("something", True)
            raise KeyError("fault")

        def gave_up(part):
            raise harness.Failed("no answer")

        def skipped(part):
            raise harness.Skipped("needs a GPU")

        def half(part):
            part.check("first", False)
            raise harness.Skipped("needs a GPU")

        def empty(part):
            pass

        results, text = self.table(("good", good, True), ("bad", bad, True), ("broken", broken, True), ("gave-up", gave_up, False),
                                   ("skipped", skipped, False), ("half", half, True), ("empty", empty, True))
        self.assertEqual(results, {"good": "ok", "bad": "failed", "broken": "failed", "gave-up": "failed", "skipped": "skipped",
                                   "half": "failed", "empty": "failed"})
        for line in ("42 things", "FAILED this: since 1 is not 2", "1 of 2 checks hold", "KeyError: 'fault'", "no answer",
                     "needs a GPU"):
            self.assertIn(line, text)
        with open(os.path.join(self.folder, "inject.jsonl"), encoding="utf-8") as file:
            self.assertEqual({(row := json.loads(line))["part"]: row["result"] for line in file}, results)

    def test_neighbours_run_together_and_others_alone(self):
        running, meeting = set(), threading.Barrier(2, timeout=60)

        def meets(part):
            running.add(part.name)
            meeting.wait()
            running.discard(part.name)
            part.check("ran", True)

        def alone(part):
            running.add(part.name)
            part.check("alone", running == {part.name}, running)
            running.discard(part.name)

        results, text = self.table(("a", meets, True), ("b", meets, True), ("c", alone, False), ("d", alone, False))
        self.assertEqual(set(results.values()), {"ok"}, text)


class Command(Scratch):
    def inject(self, *arguments):
        return subprocess.run([os.path.join(GPU, "inject"), *arguments], capture_output=True, text=True, check=False)

    def test_usage(self):
        self.assertEqual(self.inject("--help").returncode, 0)
        for arguments in (["--nonsense"], ["--out"], ["--moe-convert", "/nonexistent"], ["--build", "/nonexistent"],
                          ["--build", self.folder, "--out", self.folder, "no-such-part"]):
            done = self.inject(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), arguments)
            self.assertTrue(done.stderr.startswith("inject: "), done.stderr)

    def test_help_names_every_part(self):
        text = self.inject("--help").stdout
        for name, *_ in conduct.PARTS:
            self.assertRegex(text, rf"(?m)^  {name} ")

    def test_what_is_skipped_does_not_fail(self):
        done = self.inject("--build", self.folder, "--out", os.path.join(self.folder, "new"), "moe")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "moe +skipped .*needs --moe-convert FILE")

    def test_a_workload_that_runs_out_of_memory(self):
        workload = self.write("moe.py", "print('{\"result\": \"oom\", \"mode\": \"m\", \"retries\": 0, \"convert_s\": null}')\nexit(1)\n")
        self.setup.moe = workload
        part = self.part()
        with self.assertRaises(harness.Failed):
            parts_measure.moe(part)
        self.assertIn("prealloc, 8 MiB of slack: finishes", self.failed(part))
        self.assertIn("prealloc, 8 MiB of slack: no request failed", self.failed(part))


class Sources(unittest.TestCase):
    def test_python_compiles(self):
        for folder in (GPU, os.path.join(GPU, "work")):
            for name in sorted(os.listdir(folder)):
                if name.endswith(".py"):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        compile(file.read(), name, "exec")


if __name__ == "__main__":
    unittest.main()
