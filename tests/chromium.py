# SPDX-License-Identifier: MIT
"""A headless Chromium that a test opens pages in and asks about them, over the pipe of its remote debugging. Standard library
only."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
LIMIT_S = 120  # for any answer; a page that takes so long has hung


def find():
    """The program, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class BrowserError(Exception):
    pass


class Browser:
    """One tab of a browser with a profile of its own. What the page writes to its console as errors is in `console`."""

    def __init__(self, program):
        # Its own processes may still write while it is removed.
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.outgoing = os.pipe()
        self.incoming, from_browser = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4.
        command = [program, "--headless", "--remote-debugging-pipe", "--disable-gpu", "--no-sandbox", "--no-first-run",
                   "--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(["/bin/sh", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "sh", *command],
                                        pass_fds=(to_browser, from_browser), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session, self.console, self.events = b"", 0, None, [], []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        self.session = None
        try:
            self.call("Browser.close")
            self.process.wait(LIMIT_S)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        for end in (self.outgoing, self.incoming):
            os.close(end)
        self.profile.cleanup()

    def message(self):
        """The next one that the browser sends."""
        while b"\0" not in self.buffer:
            if not select.select([self.incoming], [], [], LIMIT_S)[0]:
                raise BrowserError("the browser does not answer")
            data = os.read(self.incoming, 1 << 20)
            if not data:
                raise BrowserError("the browser has ended")
            self.buffer += data
        text, self.buffer = self.buffer.split(b"\0", 1)
        told = json.loads(text)
        self.note(told)
        return told

    def note(self, told):
        method, about = told.get("method"), told.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.console.append(str(about["exceptionDetails"].get("exception", {}).get("description")))
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.console.append(json.dumps(about["args"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.console.append(about["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.events.append(about["request"]["url"])

    def call(self, method, **about):
        self.number += 1
        told = {"id": self.number, "method": method, "params": about}
        if self.session:
            told["sessionId"] = self.session
        os.write(self.outgoing, json.dumps(told).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def open(self, path, width=1280, height=900, dark=False):
        """Shows a file and waits until it has loaded and drawn itself."""
        self.console, self.events = [], []
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        self.wait("document.readyState === 'complete' && document.body.dataset.errors !== undefined")
        self.settle()

    def settle(self):
        """Until what was changed has been drawn."""
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def wait(self, condition):
        end = time.monotonic() + LIMIT_S
        while not self.ask(condition):
            if time.monotonic() > end:
                raise BrowserError(f"never true: {condition}")
            time.sleep(0.02)

    def ask(self, expression):
        """What a JavaScript expression, or the promise that it is, comes to."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"].get("exception", {}).get("description")))
        return answer["result"].get("value")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, begin, end):
        self.mouse("mousePressed", *begin, button="left", buttons=1, clickCount=1)
        for part in (0.5, 1):
            self.mouse("mouseMoved", *(a + (b - a) * part for a, b in zip(begin, end)), button="left", buttons=1)
        self.mouse("mouseReleased", *end, button="left", clickCount=1)
        self.settle()

    def click(self, x, y):
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.settle()

    def key(self, key):
        """A key that is pressed and let go; letters and signs are typed."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def screenshot(self, path, whole=True):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
