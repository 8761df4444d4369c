"""A headless Chromium by its DevTools protocol, over pipes, with nothing but Python's own library.

Nothing leaves this machine: every name but 127.0.0.1 is unknown to it.
"""
import json
import os
import re
import select
import shutil

import pytest

from .places import ENVIRONMENT
from .program import Daemon
from .waiting import PATIENCE, eventually

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "ArrowDown": 40, "/": 191}
VIOLATIONS = """window.violations = []; document.addEventListener('securitypolicyviolation',
    (e) => window.violations.push(e.violatedDirective + ' ' + e.blockedURI));"""


class Browser(Daemon):
    def __init__(self, folder):
        program = next((path for name in PROGRAMS
                        if (path := shutil.which(name, path=ENVIRONMENT["PATH"]))), None)
        if not program:
            pytest.skip("no chromium-headless-shell is installed, and no chromium")
        for pipe in "to", "from":
            os.mkfifo(folder / pipe)
        self._to, self._from = (os.open(folder / pipe, os.O_RDWR) for pipe in ("to", "from"))
        self._unread, self._n, self._pages = b"", 0, {}
        super().__init__(
            folder / "browser.log", "sh", "-c", 'exec "$@" 3<to 4>from', "sh", program,
            "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            f"--user-data-dir={folder}/profile", "about:blank", HOME=str(folder))
        self.start()

    def _message(self):
        while b"\0" not in self._unread:
            if not select.select([self._from], [], [], PATIENCE)[0]:
                raise AssertionError(f"the browser said nothing for {PATIENCE:.0f} s")
            self._unread += os.read(self._from, 1 << 20)
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        self._n += 1
        message = {"id": self._n, "method": method, "params": params}
        os.write(self._to, json.dumps({**message, **(
            {"sessionId": session} if session else {})}).encode() + b"\0")
        while (said := self._message()).get("id") != self._n:
            if said.get("sessionId") in self._pages:
                self._pages[said["sessionId"]].note(said["method"], said["params"])
        assert "error" not in said, f"{method}: {said['error']}"
        return said["result"]

    def page(self):
        """A new tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._pages[session] = Page(self, session, target)
        for domain in "Page", "Runtime", "Log", "Network":
            self._pages[session].call(f"{domain}.enable")
        self._pages[session].before_each_page(VIOLATIONS)
        return self._pages[session]


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.log, self.downloads = [], []
        self.expected = ()  # how complaints begin that a test brings about

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def note(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.log.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded":
            entry = params["entry"]
            self.log.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
        elif method == "Runtime.consoleAPICalled":
            self.log.append(f"console: {[said.get('value') for said in params['args']]}")
        elif method == "Network.requestWillBeSent":
            self.downloads.append(params["request"]["url"])

    def complaints(self):
        """Of the page, in the console, and of violations of its policy."""
        return self.eval("violations") + [
            said for said in self.log if not said.startswith(self.expected)]

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def before_each_page(self, script):
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def eval(self, script):
        said = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                         awaitPromise=True)
        # While the next page is on its way, it is an error to ask for what that has.
        assert "exceptionDetails" not in said, f"{script}: {said['exceptionDetails']}"
        return said["result"].get("value")

    def text(self, selector):
        return self.eval(f"document.querySelector({json.dumps(selector)}).textContent")

    def until(self, script):
        __tracebackhide__ = True
        return eventually(lambda: self.eval(script))

    def shows(self, selector, *patterns):
        """Once all patterns are found in the text of what is there."""
        __tracebackhide__ = True

        def look():
            text = self.text(selector)
            for pattern in patterns:
                assert re.search(pattern, text), f"{pattern!r} is not in {text!r}"
            return True

        return eventually(look)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 500)
        self.until(f"innerWidth === {width}")

    def media(self, **features):
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()])

    def click(self, selector):
        self.eval(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, *keys):
        for key in keys:
            text = {"text": {"Enter": "\r", "/": "/"}[key]} if key in ("Enter", "/") else {}
            event = {"key": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 0}
            self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **text,
                      **event)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text):
        self.call("Input.insertText", text=text)
