"""A headless Chromium by its DevTools protocol, over a pipe, with nothing but Python's own library.

Nothing leaves this machine: every name but 127.0.0.1 is unknown to it.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import time

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36, "ArrowUp": 38, "ArrowDown": 40}


def program():
    return next((p for name in PROGRAMS if (p := shutil.which(name))), None)


class Browser:
    def __init__(self, directory, wait=20):
        down, up = os.pipe(), os.pipe()
        self.wait, self.buf, self.n, self.log, self.downloads = wait, b"", 0, [], []
        self.to, self.of = down[1], up[0]
        argv = [program(), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
                "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
                f"--user-data-dir={directory}", "about:blank"]
        self.process = subprocess.Popen(["sh", "-c", f'exec "$@" 3<&{down[0]} 4>&{up[1]}', "sh", *argv], pass_fds=(down[0], up[1]),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(down[0])
        os.close(up[1])
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Performance"):
            self.call(domain + ".enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source="""window.violations = [];
            document.addEventListener('securitypolicyviolation', (e) => window.violations.push(e.violatedDirective + ' ' + e.blockedURI));""")

    def message(self, end):
        while b"\0" not in self.buf:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.of], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.of, 1 << 20)
            if not more:
                raise EOFError("the browser has ended")
            self.buf += more
        one, self.buf = self.buf.split(b"\0", 1)
        return json.loads(one)

    def note(self, m):
        p, kind = m.get("params", {}), m.get("method")
        if kind == "Runtime.exceptionThrown":
            d = p["exceptionDetails"]
            self.log.append("exception: " + d.get("exception", {}).get("description", d["text"]))
        elif kind == "Log.entryAdded":
            self.log.append(f"{p['entry']['source']}: {p['entry']['text']} {p['entry'].get('url', '')}")
        elif kind == "Runtime.consoleAPICalled":
            self.log.append("console: " + " ".join(str(a.get("value")) for a in p["args"]))
        elif kind == "Network.requestWillBeSent":
            self.downloads.append(p["request"]["url"])

    def call(self, method, **params):
        self.n += 1
        m = {"id": self.n, "method": method, "params": params}
        if self.session:
            m["sessionId"] = self.session
        os.write(self.to, json.dumps(m).encode() + b"\0")
        end = time.monotonic() + self.wait
        while True:
            got = self.message(end)
            if got.get("id") == self.n:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return got["result"]
            self.note(got)

    def eval(self, script):
        r = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(r["exceptionDetails"].get("exception", {}).get("description", str(r)))
        return r["result"].get("value")

    def until(self, script, seconds=15):
        """Waits for an event: until it is true. Returns whether it was."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.eval(script):
                    return True
            except RuntimeError:  # the page is on its way
                pass
            time.sleep(0.05)
        return False

    def open(self, url):
        self.call("Page.navigate", url=url)

    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def key(self, name, shift=False):
        text = {"Enter": "\r"}.get(name, name if len(name) == 1 else "")
        code = KEYS.get(name, ord(name.upper()) if len(name) == 1 else 0)
        code = {"/": 191}.get(name, code)
        p = {"key": name, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **({"text": text} if text else {}), **p)
        self.call("Input.dispatchKeyEvent", type="keyUp", **p)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def screenshot(self, path):
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        with open(path, "wb") as f:
            f.write(data)
        return len(data)

    def end(self):
        try:
            session, self.session = self.session, None
            self.call("Browser.close")
        except (OSError, EOFError, TimeoutError, RuntimeError):
            pass
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
