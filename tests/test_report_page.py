# SPDX-License-Identifier: MIT
"""The page that `cleave report -o` writes, in a headless Chromium: it shows what the analysis says (the same command's JSON), it can
be looked at from near, names in a trace cannot harm it, and it asks nobody for anything.

Usage: test_report_page.py CLEAVE REPORT_SAMPLE EMBED [large]. Skipped where there is no Chromium or the command was built without d3."""
import base64
import html
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
import unittest

import chromium

CLEAVE, SAMPLE, EMBED = sys.argv[1:4]
LARGE = sys.argv[4:] == ["large"]
DATA = os.environ["CLEAVE_TEST_DATA"]
MIB = 1 << 20
PICK = (255, 159, 28)  # the colour of blocks that were chosen
LEFT, RIGHT, TOP, BOTTOM = 116, 30, 4, 22  # margins of the map
# What is on the map, to be read without a word of the browser's about how slow that is.
COPY = """(() => { const c = document.querySelector('#map canvas'), to = document.createElement('canvas');
    to.width = c.width; to.height = c.height; const context = to.getContext('2d', {willReadFrequently: true});
    context.drawImage(c, 0, 0); return context; })()"""
PROGRAM = chromium.find()


def cleave(*arguments):
    return subprocess.run([CLEAVE, "report", *arguments], capture_output=True, text=True, check=False)


def event(action, addr, size, frames=(), **more):
    event.time += 1000
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": event.time, "frames": list(frames), **more}


event.time = 0


def snapshot(events, segments=()):
    return {"segments": list(segments), "device_traces": [list(events)]}


def frame(name, filename="model.py", line=1):
    return {"name": name, "filename": filename, "line": line}


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = chromium.Browser(PROGRAM)
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def page(self, *traces, options=("--no-trials",)):
        """The page of traces, opened; and the command's JSON."""
        out = self.path("page.html")
        told = cleave(*traces, "-o", out, "--json", *options)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.open(out)
        return json.loads(told.stdout)

    def open(self, path, **how):
        self.browser.open(path, **how)
        self.healthy()

    def healthy(self):
        self.assertEqual(self.browser.console, [])
        self.assertEqual(self.ask("document.body.dataset.errors"), "0", self.text("#broken"))
        self.assertEqual(self.ask("document.body.dataset.ready"), "1")
        self.assertTrue(all(url.startswith(("file:", "data:")) for url in self.browser.events), self.browser.events)

    def pickled(self, name, document):
        path = self.path(name)
        with open(path, "wb") as file:
            pickle.dump(document, file, protocol=4)
        return path

    def ask(self, expression):
        return self.browser.ask(expression)

    def text(self, selector):
        return self.ask(f"document.querySelector({json.dumps(selector)}).textContent")

    def count(self, selector):
        return self.ask(f"document.querySelectorAll({json.dumps(selector)}).length")

    def click(self, selector, index=0):
        x, y = self.ask(f"""(() => {{ const e = document.querySelectorAll({json.dumps(selector)})[{index}];
            e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();
            return [b.left + b.width / 2, b.top + b.height / 2]; }})()""")
        self.browser.click(x, y)

    def box(self, selector):
        """Where it is on the screen, once it has been brought there."""
        return self.ask(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});
            const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; }})()""")

    def in_map(self, x, y):
        """A place of the plot, from 0 to 1 both ways, low addresses below, in pixels of the screen."""
        left, top, width, height = self.box("#map canvas")
        return (left + LEFT + x * (width - LEFT - RIGHT), top + TOP + (1 - y) * (height - TOP - BOTTOM))

    def pixel(self, x, y):
        left, top, _, _ = self.box("#map canvas")
        px, py = self.in_map(x, y)
        return tuple(self.ask(f"Array.from({COPY}.getImageData({int(px - left)}, {int(py - top)}, 1, 1).data.slice(0, 3))"))

    def colour(self, name):
        text = self.ask(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()")
        return tuple(int(text[i:i + 2], 16) for i in (1, 3, 5))

    def pixels_of(self, colour):
        return self.ask(f"""(() => {{ const c = {COPY}, d = c.getImageData(0, 0, c.canvas.width, c.canvas.height).data; let n = 0;
            for (let i = 0; i < d.length; i += 4) n += d[i] === {colour[0]} && d[i + 1] === {colour[1]} && d[i + 2] === {colour[2]};
            return n; }})()""")

    def image(self):
        self.browser.mouse("mouseMoved", 1, 1)
        self.browser.settle()
        return self.ask("document.querySelector('#map canvas').toDataURL()")


class Bundled(Pages):
    def blocks(self):
        """How many the trace has, from the page's last table; with them all kept, as many are drawn."""
        return re.search(r"([\d,]+) allocation", self.text("#info")).group(1).replace(",", "")

    def test_what_the_analysis_says(self):
        for name in ("serve", "train", "moe_stack", "fuzz_capped", "fuzz_pendcap", "fuzz_expandcap", "pools", "k3_reorder_split20"):
            with self.subTest(name):
                told = self.page(os.path.join(DATA, name + ".clv"))["devices"][0]
                self.assertEqual(self.text("#explanation"), told["summary"])
                self.assertEqual(self.text("#figures dd"), f"{told['failures']:,}")
                self.assertEqual(self.count("#timeline .flag"), len(told["moments"]))
                self.assertEqual(self.count("#moments button"), len(told["moments"]))
                self.assertEqual(self.count("#failures > *"), sum(m["kind"] == "failure" for m in told["moments"]))
                # every block is in the map, the whole of which is shown
                self.assertEqual(self.ask("document.body.dataset.blocks"), self.blocks())
                for number, moment in enumerate(told["moments"]):
                    self.click("#moments button", number)
                    self.assertEqual(self.ask("Array.from(document.querySelectorAll('#culprits td.name'), e => e.lastChild.data.trim())"),
                                     [g["name"] for g in moment["culprits"]])
                    exact = self.ask("Array.from(document.querySelectorAll('#culprits tbody td:nth-child(2) [title]'), e => e.title)")
                    self.assertEqual(exact, [f"{g['stranded_bytes']:,} bytes" for g in moment["culprits"]])
                self.healthy()

    def test_trials(self):
        told = self.page(os.path.join(DATA, "moe_stack.clv"), options=())["devices"][0]
        tried = told["trials"]["tried"]
        self.assertGreater(len(tried), 1)
        self.assertEqual(self.ask("Array.from(document.querySelectorAll('#trials td:first-child'), e => e.textContent)"),
                         [t["what"] for t in tried])
        self.assertEqual(self.ask("Array.from(document.querySelectorAll('#trials td:nth-child(2)'), e => e.textContent === 'yes')"),
                         [t["confirmed"] for t in tried])

    def test_several_ranks(self):
        names = ("moe_stack", "fuzz_capped", "train")
        told = self.page(*(os.path.join(DATA, name + ".clv") for name in names))
        order = [os.path.basename(d["file"]) for d in told["devices"]]
        self.assertEqual(self.ask("Array.from(document.querySelectorAll('#devices button'), e => e.textContent)"), order)
        self.assertEqual(order[0], "fuzz_capped.clv")  # in which requests failed
        for number, device in enumerate(told["devices"]):
            self.click("#devices button", number)
            self.assertEqual(self.text("#explanation"), device["summary"])
            self.assertIn(order[number], self.ask("document.title"))
            self.assertEqual(self.ask("document.body.dataset.blocks"), self.blocks())
        self.healthy()


class Looking(Pages):
    """A segment of 20 MiB: a block of 4 MiB for all of the time, one of 8 MiB above it for the first half; then free."""

    def setUp(self):
        event.time = 0
        base, low, high = 0x7F0000000000, [frame("keep", line=7)], [frame("drop", line=8)]
        events = [event("segment_alloc", base, 20 * MIB), event("alloc", base, 4 * MIB, low), event("alloc", base + 4 * MIB, 8 * MIB, high),
                  *(e for i in range(24) for e in (event("alloc", base + 12 * MIB, 512), event("free_completed", base + 12 * MIB, 512))),
                  event("free_completed", base + 4 * MIB, 8 * MIB),
                  *(e for i in range(24) for e in (event("alloc", base + 12 * MIB, 512), event("free_completed", base + 12 * MIB, 512)))]
        self.trace = self.pickled("look.pickle", snapshot(events))
        self.page(self.trace)

    def tearDown(self):
        self.healthy()

    def test_the_map_shows_blocks_and_holes(self):
        low, held = self.pixel(0.5, 0.1), self.colour("map-held")
        self.assertNotEqual(low, held)
        self.assertEqual(self.pixel(0.9, 0.1), low)
        self.assertNotIn(self.pixel(0.25, 0.4), (held, low))
        self.assertEqual(self.pixel(0.8, 0.4), held)
        self.assertEqual(self.pixel(0.3, 0.9), held)

    def test_what_is_under_the_pointer(self):
        self.browser.mouse("mouseMoved", *self.in_map(0.25, 0.4))
        self.browser.settle()
        told = self.text("#tip")
        for part in ("8.00 MiB", "8,388,608", "0x7f0000400000", "drop", "model.py:8", "lived49.0 ms"):
            self.assertIn(part, told)
        self.browser.mouse("mouseMoved", *self.in_map(0.8, 0.4))
        self.browser.settle()
        self.assertIn("free between blocks: 16.0 MiB", self.text("#tip"))
        self.browser.mouse("mouseMoved", 2, 2)
        self.browser.settle()
        self.assertTrue(self.ask("document.querySelector('#tip').hidden"))

    def test_a_block_is_picked(self):
        self.browser.click(*self.in_map(0.25, 0.4))
        self.assertIn("8.00 MiB", self.text("#block"))
        self.assertIn("drop", self.text("#block .stack"))
        self.click("#block button")
        self.assertGreater(self.pixels_of(PICK), 1000)
        self.assertEqual(self.pixel(0.25, 0.4), PICK)
        self.assertNotEqual(self.pixel(0.25, 0.1), PICK)

    def test_culprits_are_shown_in_the_map(self):
        before = self.pixels_of(PICK)
        self.click("#culprits tr.pick td")
        self.assertGreater(self.pixels_of(PICK), before + 500)
        self.assertEqual(self.ask("document.querySelector('#culprits tr.pick').getAttribute('aria-selected')"), "true")
        self.click("#culprits tr.pick td")
        self.assertEqual(self.pixels_of(PICK), before)
        self.click("#culprits tr.pick button")
        self.assertRegex(self.text("#culprits .stack"), "keep|drop")

    def test_zooming_the_map(self):
        whole = self.image()
        x, y = self.in_map(0.25, 0.4)
        # the page scrolls until the map was clicked into
        self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-120)
        self.browser.settle()
        self.assertEqual(self.image(), whole)
        self.ask("document.querySelector('#map canvas').focus()")
        x, y = self.in_map(0.25, 0.4)
        for _ in range(12):
            self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-240)
        self.browser.settle()
        # only the block that the pointer is on is left
        inside = self.pixel(0.25, 0.4)
        for place in ((0.02, 0.03), (0.98, 0.03), (0.02, 0.97), (0.98, 0.97)):
            self.assertEqual(self.pixel(*place), inside)
        # the chart above shows the same stretch
        self.assertTrue(self.ask("document.querySelector('#overview .selection').getAttribute('width') > 0"))
        near = self.image()
        self.ask("document.querySelector('#map canvas').focus()")
        self.browser.key("0")
        self.assertEqual(self.image(), whole)
        self.browser.key("+")
        self.assertNotIn(self.image(), (whole, near))
        self.browser.key("0")
        self.assertEqual(self.image(), whole)

    def test_dragging_the_map(self):
        self.click("#map-in")
        before = self.image()
        begin, end = self.in_map(0.5, 0.5), self.in_map(0.7, 0.5)
        self.browser.drag(begin, end)
        moved = self.image()
        self.assertNotEqual(moved, before)
        self.assertTrue(self.ask("document.querySelector('#block').hidden"))  # it was no click
        self.browser.drag(end, begin)
        self.assertEqual(self.image(), before)

    def test_zooming_the_timeline(self):
        ticks = "Array.from(document.querySelectorAll('#timeline .axis:nth-of-type(3) text, #timeline .tick text'), e => e.textContent).join()"
        whole = self.ask(ticks)
        left, top, width, height = self.box("#timeline")
        self.browser.drag((left + 300, top + height / 2), (left + 500, top + height / 2))
        self.assertNotEqual(self.ask(ticks), whole)
        self.click("#whole")
        self.assertEqual(self.ask(ticks), whole)
        self.browser.mouse("mouseMoved", left + 300, top + height / 2)
        self.browser.settle()
        self.assertIn("held20.0 MiB", self.text("#tip"))
        self.click("[data-axis=events]")
        self.assertNotEqual(self.ask(ticks), whole)

    def test_moments(self):
        self.assertGreater(self.count("#timeline .flag"), 1)
        for number in range(self.count("#timeline .flag")):
            self.ask(f"document.querySelectorAll('#timeline .flag')[{number}].focus()")
            self.browser.key("Enter")
            pressed = self.ask("Array.from(document.querySelectorAll('#moments button'), e => e.getAttribute('aria-pressed'))")
            self.assertEqual(pressed, [str(i == number).lower() for i in range(len(pressed))])

    def test_causes_can_be_left_out(self):
        layers = self.count("#timeline path.layer")
        self.click("#legend button")
        self.assertEqual(self.count("#timeline path.layer"), layers - 1)

    def test_dark_and_narrow(self):
        back = "getComputedStyle(document.body).backgroundColor"
        light = self.ask(back)
        self.open(self.path("page.html"), width=380, height=700, dark=True)
        self.assertNotEqual(self.ask(back), light)
        self.assertLessEqual(self.ask("document.documentElement.scrollWidth"), 380)
        self.assertNotEqual(self.pixel(0.5, 0.1), self.colour("map-held"))


class Notes(Pages):
    """What a recorder notes besides requests."""

    def setUp(self):
        path = self.path("sample.html")
        subprocess.run([SAMPLE, "page", path], check=True)
        self.open(path)

    def rows(self, table):
        return self.ask(f"Array.from(document.querySelectorAll('#{table} tr'), r => Array.from(r.cells, c => c.textContent))")

    def test_reservations_against_the_plan(self):
        head, *rows = self.rows("reservations")
        self.assertEqual(len(rows), 2)
        planned = dict(zip(head, rows[0]))
        self.assertEqual(planned["name"], "w13_weight (hard)")
        self.assertEqual([planned[k] for k in ("slot", "planned", "held", "most at once", "served", "given up", "found none left")],
                         ["2.00 MiB", "4", "4", "8.00 MiB", "3", "0", "2"])
        self.assertIn("too few: 2", rows[0][-1])
        self.assertIn("1 given up", rows[1][-1])
        self.assertIn("reserved", self.text("#map-legend"))

    def test_native_frames_have_addresses(self):
        self.click("#culprits tr.pick button")
        self.assertEqual(self.ask("Array.from(document.querySelectorAll('#culprits .stack li'), e => e.textContent)"),
                         ["forward  model.py:312", "0x1234  libnative.so"])

    def test_phases_and_marks(self):
        self.assertEqual(self.ask("Array.from(document.querySelectorAll('#timeline title'), e => e.textContent.split(':')[0])")[:2],
                         ["load", "convert <b>layer</b> 1"])
        self.assertEqual(self.count("#timeline line[stroke-dasharray='2 3']"), 1)
        self.assertIn('mark "half-way"', self.text("#moments"))

    def test_about_the_trace(self):
        told = {row[0]: row[1] for row in self.rows("info")}
        self.assertEqual(told["process"], '4242, rank 3, 2025-12-01 00:00:00 UTC: python server.py --model "k3"')
        self.assertEqual(told["CLEAVE_CONF"], "reserve:2MiB*4")
        self.assertIn("80.00 GiB", told["device"])
        self.assertIn("77: the disk", told["events lost"])
        self.assertIn("events lost: 77", self.text("#cautions"))

    def test_colours(self):
        for way in self.ask("Array.from(document.querySelectorAll('#colour option'), o => o.value)"):
            self.ask(f"""(() => {{ const s = document.querySelector('#colour'); s.value = '{way}';
                s.dispatchEvent(new Event('change')); }})()""")
            self.browser.settle()
            self.assertGreater(self.count("#map-legend li"), 2)
        self.healthy()


class Hostile(Pages):
    EVIL = ['</script><script>document.title = "owned"</script>', "<img src=x onerror='document.title = \"owned\"'>", "<!--<script>",
            "a\u2028b\u2029c", "\U0001f600 &lt;b&gt; &amp;", "'\"`${document.title = 'owned'}", "x" * 5000, "\x01\x7f\t"]

    def test_names_are_only_shown(self):
        event.time = 0
        base = 0x7F0000000000
        events = [event("segment_alloc", base, 20 * MIB)]
        for i, name in enumerate(self.EVIL):
            events.append(event("alloc", base + 2 * i * MIB, MIB, [frame(name, name + ".py", i)]))
        told = self.page(self.pickled(self.EVIL[1].replace("/", "") + ".pickle", snapshot(events)))
        self.assertNotEqual(self.ask("document.title"), "owned")
        self.assertEqual(self.count("img, script:not([type])"), 2)  # d3 and ours
        moments = told["devices"][0]["moments"]
        self.click("#moments button", max(range(len(moments)), key=lambda i: len(moments[i]["culprits"])))
        for button in range(self.count("#culprits tr.pick button")):
            self.click("#culprits tr.pick button", button)
        shown = self.ask("Array.from(document.querySelectorAll('#culprits .stack li'), e => e.firstChild.data)")
        for name in self.EVIL:
            self.assertTrue(any(name == s or (len(name) > 400 and s == name[:400] + "\u2026") for s in shown), (name[:50], shown))
        self.assertIn("<img", self.text("#what"))
        self.assertNotEqual(self.ask("document.title"), "owned")
        self.healthy()

    def test_absurd_numbers(self):
        event.time = 0
        top = (1 << 64) - 1
        events = [event("alloc", 0, 1), event("alloc", top - 511, 512), event("alloc", 1 << 63, 1 << 40), event("free_completed", 0, 1)]
        told = cleave(self.pickled("absurd.pickle", snapshot(events)), "--no-trials", "-o", self.path("absurd.html"))
        if told.returncode == 0:
            self.open(self.path("absurd.html"))
        else:
            self.assertEqual(told.returncode, 2)

    def test_a_state_alone(self):
        base = 0x7F0000000000
        blocks = [{"address": base, "size": MIB, "requested_size": MIB, "state": "active_allocated", "frames": [frame("kept")]},
                  {"address": base + MIB, "size": MIB, "requested_size": 0, "state": "inactive", "frames": []}]
        segment = {"device": 0, "address": base, "total_size": 2 * MIB, "allocated_size": MIB, "active_size": MIB, "requested_size": MIB,
                   "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}
        self.page(self.pickled("state.pickle", {"segments": [segment], "device_traces": []}))
        self.assertEqual(self.text("#culprits td.name").split()[-1], "kept")
        self.assertEqual(int(self.ask("document.body.dataset.blocks")), 1)
        self.assertNotIn("never freed", self.text("#culprits"))
        self.assertNotIn("recorded", self.text("#figures"))

    def test_no_event(self):
        told = cleave(self.pickled("empty.pickle", snapshot([])), "-o", self.path("empty.html"))
        self.assertEqual(told.returncode, 2)
        self.assertFalse(os.path.exists(self.path("empty.html")))

    def test_the_page_may_not_ask_anybody(self):
        self.page(os.path.join(DATA, "pools.clv"))
        self.assertEqual(self.ask("fetch('http://127.0.0.1:9/').then(() => 'asked', () => 'refused')"), "refused")
        self.browser.settle()
        self.assertIn("connect-src", self.text("#broken"))

    def test_a_damaged_page_says_so(self):
        self.page(os.path.join(DATA, "pools.clv"))
        with open(self.path("page.html"), encoding="utf-8") as file:
            whole = file.read()
        cut = re.sub(r'"stack":"[^"]*"', '"stack":"' + base64.b64encode(b"\xff").decode() + '"', whole, count=1)
        self.assertNotEqual(cut, whole)
        with open(self.path("cut.html"), "w", encoding="utf-8") as file:
            file.write(cut)
        self.browser.open(self.path("cut.html"))
        self.assertGreater(int(self.ask("document.body.dataset.errors")), 0)
        self.assertFalse(self.ask("document.querySelector('#broken').hidden"))


class Written(unittest.TestCase):
    """The file itself."""

    def test_what_is_in_it(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "a.html")
            self.assertEqual(cleave(os.path.join(DATA, "pools.clv"), "--no-trials", "-o", out).returncode, 0)
            with open(out, encoding="utf-8") as file:
                page = file.read()
            self.assertIn("Redistribution and use in source and binary forms", page)
            policy = html.unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page).group(1))
            self.assertIn("default-src 'none'", policy)
            self.assertNotIn("unsafe", policy)
            self.assertEqual(re.findall(r'(?:src|href)="[^"]*"', page.split("<script")[0]), [])
            # the same input makes the same page
            again = os.path.join(folder, "b.html")
            cleave(os.path.join(DATA, "pools.clv"), "--no-trials", "-o", again)
            with open(again, encoding="utf-8") as file:
                self.assertEqual(file.read(), page)

    def embed(self, folder, css, d3):
        names = {"page.html": "{{csp}} {{style}} {{data}} {{scripts}}", "page.css": css, "d3.js": d3, "license": "L", "a.js": "f();"}
        for name, content in names.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(content)
        out = os.path.join(folder, "out.c")
        paths = [os.path.join(folder, n) for n in ("page.html", "page.css", "d3.js", "license")]
        told = subprocess.run([sys.executable, EMBED, *paths[:2], paths[2] if d3 else "", paths[3], out, os.path.join(folder, "a.js")],
                              capture_output=True, text=True, check=False)
        if told.returncode:
            return told, None
        with open(out, encoding="ascii") as file:
            arrays = re.findall(r"const unsigned char \w+\[\] = {([^}]*)}", file.read())
        return told, [bytes(int(n) for n in a.split(",")).rstrip(b"\0").decode() for a in arrays]

    def test_embedding(self):
        with tempfile.TemporaryDirectory() as folder:
            _, (head, tail) = self.embed(folder, "b {}", "d3();")
            self.assertIn("<style>b {}</style>", head)
            self.assertIn("d3();</script>", tail)
            self.assertEqual(self.embed(folder, "b {}", "")[1], ["", ""])
            self.assertIn("would end early", self.embed(folder, "b {}", "'</script>'")[0].stderr)
            self.assertIn("would end early", self.embed(folder, "</style>", "d3();")[0].stderr)


class Large(Pages):
    def test_ten_million_events(self):
        trace, out = self.path("large.clv"), self.path("large.html")
        subprocess.run([SAMPLE, "trace", "10000000", trace], check=True)
        begin = time.monotonic()
        told = cleave(trace, "-o", out)
        took = time.monotonic() - begin
        self.assertEqual(told.returncode, 0, told.stderr)
        size = os.path.getsize(out)
        self.assertLess(size, 20e6)
        begin = time.monotonic()
        self.open(out)
        opened = time.monotonic() - begin
        draws = []
        for _ in range(10):
            begin = time.monotonic()
            self.click("#map-in")
            draws.append(time.monotonic() - begin)
        self.assertGreater(int(self.ask("document.body.dataset.blocks")), 0)
        self.healthy()
        print(f"10 M events: {size / 1e6:.1f} MB in {took:.1f} s; opened in {opened:.1f} s; zoomed in {sorted(draws)[5]:.2f} s", flush=True)


def has_d3():
    with tempfile.TemporaryDirectory() as folder:
        told = cleave(os.path.join(DATA, "pools.clv"), "--no-trials", "-o", os.path.join(folder, "a.html"))
    return told.returncode != 2 or "d3" not in told.stderr


def main():
    if not has_d3():
        print("the command was built without d3")
        sys.exit(77)
    cases = (Large,) if LARGE else (Bundled, Looking, Notes, Hostile)
    suite = unittest.TestSuite()
    for case in (() if LARGE else (Written,)) + (cases if PROGRAM else ()):
        suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    if not result.wasSuccessful():
        sys.exit(1)
    if not PROGRAM:
        print("no Chromium: pages were written, but not looked at")
        sys.exit(77)


main()
