"""A headless Chromium that shows pages at a given width and colour scheme, driven over its debugging pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

PROGRAM = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)


class Chromium:
    """One browser with one page. A context manager; `evaluate` gives what a JavaScript expression is."""

    def __init__(self, folder: Path) -> None:
        self._from_here, self._to_browser = os.pipe()
        self._to_here, self._from_browser = os.pipe()
        flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")
        read, write = self._from_here, self._from_browser
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', "-", PROGRAM, *flags, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._rest, self._count, self._session = b"", 0, None
        target = next(each for each in self.send("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        self.send("Page.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(10)
        os.close(self._to_browser)
        os.close(self._to_here)

    def send(self, method: str, **parameters: object) -> dict:
        """One command of the DevTools protocol, and its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, page: Path, width: int, scheme: str) -> None:
        """Shows a file, so many pixels wide, `light` or `dark`."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.send("Page.navigate", url=page.as_uri())
        while self.evaluate("document.readyState") != "complete" or self.evaluate("location.protocol") != "file:":
            pass

    def evaluate(self, expression: str) -> object:
        """The value of a JavaScript expression, as plain data."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"])
        return found["result"].get("value")

    def screenshot(self, file: Path, whole: bool = True) -> None:
        """What the page shows, as a PNG."""
        found = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))

    def _next(self) -> dict:
        while b"\0" not in self._rest:
            part = os.read(self._to_here, 1 << 16)
            if not part:
                raise RuntimeError("the browser has gone")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)
