"""A browser for the tests: Debian's chromium without a window, driven over a pipe by its DevTools protocol.

What is installed is taken, else Debian's package chromium-headless-shell with what it needs, unpacked into the cache.
No driver and no library is needed: a command is a JSON object and a zero byte, and so is its answer.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.waiting import wait_until

from .maven import BUILT, build_lock
from .process import DIE_WITH_OWNER

PACKAGE: Final = "chromium-headless-shell"
FONT_PACKAGE: Final = "fonts-inter"
"""So that pictures look the same wherever they are made."""

NOT_NEEDED: Final = frozenset({"xdg-utils"})
UNPACKED: Final = BUILT / "chromium"
ROOT: Final = UNPACKED / "root"
PROGRAMS: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ANSWER_S_MAX: Final = 60.0
END: Final = b"\0"
FIRST_SPARE: Final = 10
"""So that none of ours is 3 or 4."""

FONTS: Final = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig><dir>{fonts}</dir><dir>/usr/share/fonts</dir><cachedir>{cache}</cachedir>
<alias binding="same"><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
<alias binding="same"><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
"""


def missing_tools() -> str:
    """The reason why no browser can run here, empty if one can."""
    if program() is not None:
        return ""
    missing = [tool for tool in ("apt-get", "dpkg-deb") if shutil.which(tool) is None]
    if missing:
        return f"no browser: none of {', '.join(PROGRAMS)} is installed, nor {', '.join(missing)}"
    return _unpack()


def program() -> Path | None:
    """Where the browser is."""
    unpacked = ROOT / "usr/lib/chromium" / PACKAGE
    if unpacked.is_file():
        return unpacked
    return next((Path(found) for name in PROGRAMS if (found := shutil.which(name))), None)


def _unpack() -> str:
    """Get Debian's package and those it lacks here, and unpack them; why that cannot be done, empty if it was."""
    with build_lock(UNPACKED):
        if program() is not None:
            return ""
        wanted = subprocess.run(
            ["apt-get", "-s", "install", "--no-install-recommends", PACKAGE, FONT_PACKAGE],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        names = [line.split()[1] for line in wanted.stdout.splitlines() if line.startswith("Inst ")]
        names = [name for name in names if name not in NOT_NEEDED]
        if wanted.returncode != 0 or not names:
            return f"no browser, and apt-get -s install {PACKAGE} says: {wanted.stderr.strip()[-200:]}"
        fetched = subprocess.run(
            ["apt-get", "download", *names], cwd=UNPACKED, capture_output=True, text=True, check=False
        )
        if fetched.returncode != 0:
            return f"no browser, and apt-get download {PACKAGE} says: {fetched.stderr.strip()[-200:]}"
        for package in sorted(UNPACKED.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", package, ROOT], check=True)
            package.unlink()
    return ""


def _environment(directory: Path) -> dict[str, str]:
    fonts = directory / "fonts.conf"
    fonts.write_text(FONTS.format(fonts=ROOT / "usr/share/fonts", cache=directory / "fonts"))
    folders = sorted((ROOT / "usr/lib").glob("*-linux-gnu"))
    libraries = [*folders, *(folder / "pulseaudio" for folder in folders), ROOT / "usr/lib/chromium"]
    return {
        **os.environ,
        "HOME": str(directory),
        "FONTCONFIG_FILE": str(fonts),
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        "LC_ALL": "C.UTF-8",
    }


class BrowserError(Exception):
    """What the browser says of a command that failed, or of a script of a page."""


class Browser:
    """One window of a browser, as wide as a desk's unless it is told otherwise. A context manager."""

    def __init__(self, directory: Path) -> None:
        path = program()
        assert path is not None, "missing_tools() is asked before"
        to_browser, self._commands = os.pipe()
        self._answers, from_browser = os.pipe()
        theirs = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, FIRST_SPARE) for end in (to_browser, from_browser)]
        self._number = 0
        self._read = b""
        self.messages: list[dict[str, Any]] = []
        """What pages have written to their console, and errors: a page of ours has none."""
        self.asked_for: list[str] = []
        """The URLs of all that pages have asked for, themselves included."""
        # 3 and 4 are what the browser reads from and writes to.
        joined = f'exec 3<&{theirs[0]} 4>&{theirs[1]}; exec "$@"'
        with (directory / "browser.out").open("wb") as said:
            self._process = subprocess.Popen(
                [
                    *DIE_WITH_OWNER, str(os.getpid()), "bash", "-c", joined, "bash", path, "--headless",
                    "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                    "--no-first-run", "--disable-background-networking", "--disable-component-update",
                    "--hide-scrollbars", f"--user-data-dir={directory / 'profile'}", "about:blank",
                ],
                pass_fds=theirs, stdin=subprocess.DEVNULL, env=_environment(directory),
                stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        for end in (to_browser, from_browser, *theirs):
            os.close(end)
        self._session = ""

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def _begin(self) -> None:
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")
        self.look()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._commands)
        os.close(self._answers)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def look(self, width: int = 1280, height: int = 860, *, dark: bool = False, phone: bool = False) -> None:
        """Set the size of the window in CSS pixels, and what its user prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def set_scripts(self, *, on: bool) -> None:
        self._ask("Emulation.setScriptExecutionDisabled", value=not on)

    def open(self, url: str) -> None:
        """Go to *url* and return when its page is there."""
        self.run(f"void (window.leaving = true, location.assign({json.dumps(url)}))")
        self.wait_for("!window.leaving && document.readyState === 'complete'", f"{url} is there")

    def open_file(self, path: Path) -> None:
        """Show the page *path* of a folder, and return when it is there."""
        self._ask("Page.navigate", url=path.as_uri())
        self.wait_for(f"location.href === {json.dumps(path.as_uri())} && document.readyState === 'complete'", str(path))

    def run(self, script: str) -> Any:
        """Return what *script* is in the page, a value that JSON knows."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, condition: str, describe: str = "") -> None:
        def holds() -> bool:
            try:
                return bool(self.run(condition))
            except BrowserError:  # the page is just going
                return False

        wait_until(holds, ANSWER_S_MAX, describe or condition)

    def click(self, selector: str) -> None:
        """Click, and wait until the page that this leads to is there."""
        self._go(f"document.querySelector({json.dumps(selector)}).click()")

    def _go(self, script: str) -> None:
        self.run(f"void (window.leaving = true, {script})")
        self.wait_for("!window.leaving && document.readyState === 'complete'", f"{script} leads somewhere")

    def submit(self, form: str, **values: str) -> None:
        """Fill in the form that the selector *form* finds, send it by its last button, and wait for the page."""
        for name, value in values.items():
            field = f"document.querySelector({json.dumps(f'{form} [name={name}]')})"
            self.run(f"{field}.value = {json.dumps(value)}")
        self._go(f"document.querySelector({json.dumps(form)}).requestSubmit()")

    def press(self, key: str) -> None:
        """Press a key such as Tab or Enter."""
        codes = {"Tab": 9, "Enter": 13}
        text = {"text": "\r"} if key == "Enter" else {}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        self._ask("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self._ask("Input.dispatchKeyEvent", type="keyUp", **common)

    def text(self, selector: str = "main") -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def picture(self, *, whole: bool = False) -> bytes:
        """Return what is seen as PNG, or with *whole* all of the page."""
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + END)
        until = time.monotonic() + ANSWER_S_MAX
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                found: dict[str, Any] = answer["result"]
                return found
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Network.requestWillBeSent":
            self.asked_for.append(event["params"]["request"]["url"])
        kinds: dict[str, Callable[[dict[str, Any]], Any]] = {
            "Runtime.exceptionThrown": lambda found: found["exceptionDetails"],
            "Runtime.consoleAPICalled": lambda found: found["args"],
            "Log.entryAdded": lambda found: found["entry"],
        }
        taken = kinds.get(event.get("method", ""))
        if taken is not None:
            self.messages.append({"method": event["method"], "said": taken(event["params"])})

    def _next(self, until: float) -> dict[str, Any]:
        while END not in self._read:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._answers, 1 << 16) if ready else b""
            if not data:
                raise BrowserError("the browser does not answer")
            self._read += data
        line, _, self._read = self._read.partition(END)
        answer: dict[str, Any] = json.loads(line)
        return answer
