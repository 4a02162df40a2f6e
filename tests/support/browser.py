"""Headless Chromium, driven over the DevTools protocol (https://chromedevtools.github.io/devtools-protocol/).

`launched()` starts a browser with a profile of its own, and `connected()` gives access to it. A page collects what went
wrong in it: errors of scripts, of the console, and violations of the Content-Security-Policy.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp

COMMANDS = ("chromium", "chromium-browser", "google-chrome", "chrome")
ABSENT = "Chromium is missing: install Debian's package chromium"
PATIENCE = 120.0
"""Seconds after which a wait has failed: long enough for a busy machine."""
_CLOSED: set[str] = set()
"""Targets of pages that were closed: the browser may list them for a while, and no later page may take one."""
_DRAWN = """new Promise((drawn) => {
  requestAnimationFrame(() => requestAnimationFrame(drawn));
  setTimeout(drawn, 1000);
})"""
"""Ends after the next frame, in which the page draws its rows; a hidden page has no frames."""
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-startup-window",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-proxy-server",
    "--password-store=basic",
    "--force-color-profile=srgb",
    # Else each window loads the list below its address bar, a page of its own, which takes longer than ours; and a page
    # that was left goes on.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,BackForwardCache",
    "--remote-debugging-port=0",
    "--remote-debugging-address=127.0.0.1",
)
_KEYS = {"Enter": ("Enter", 13, "\r"), "Escape": ("Escape", 27, ""), "Tab": ("Tab", 9, "")} | {
    f"Arrow{name}": (f"Arrow{name}", code, "") for name, code in (("Left", 37), ("Up", 38), ("Right", 39), ("Down", 40))
}


def command() -> str | None:
    """Returns the path of an installed Chromium."""
    return next((found for name in COMMANDS if (found := shutil.which(name))), None)


class Browser:
    """A running browser, and its pages within `async with`. One page is kept for the next to use the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._pages: dict[str, Page] = {}
        self._context = ""
        self._kept: list[str] = []

    async def __aenter__(self) -> "Browser":
        contexts = (await self.send("Target.getBrowserContexts"))["browserContextIds"]
        if not contexts:
            contexts = [(await self.send("Target.createBrowserContext"))["browserContextId"]]
        self._context = contexts[0]
        self._kept = await self._targets()
        return self

    async def __aexit__(self, *_: object) -> None:
        targets = await self._targets()
        for page in [page for page in self._pages.values() if page.target in targets]:
            # Its process is the most expensive part of a page.
            await (page.leave() if page.target == targets[0] else page.close())

    async def _targets(self) -> list[str]:
        """Returns the ids of the open pages, always in one order."""
        found = (await self.send("Target.getTargets"))["targetInfos"]
        pages = [each for each in found if each["type"] == "page" and each.get("browserContextId") == self._context]
        return sorted({each["targetId"] for each in pages} - _CLOSED)

    async def page(self, width: int = 1280, height: int = 800, *, dark: bool = False, **features: str) -> "Page":
        """Opens an empty page. `features` are media features such as `prefers_reduced_motion="reduce"`."""
        target = self._kept.pop() if self._kept else await self._created()
        session = (await self.send("Target.attachToTarget", {"targetId": target, "flatten": True}))["sessionId"]
        page = self._pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log"):
            await page.send(f"{domain}.enable")
        await page.resize(width, height)
        await page.prefer(dark=dark, **features)
        return page

    async def _created(self) -> str:
        created = await self.send("Target.createTarget", {"url": "about:blank", "browserContextId": self._context})
        return str(created["targetId"])

    async def send(self, method: str, parameters: Any = None, session: str | None = None) -> Any:
        """Calls a method and returns its result. Raises RuntimeError with the error of the browser."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters or {}}
        await self._socket.send_json(message if session is None else message | {"sessionId": session})
        try:
            async with asyncio.timeout(PATIENCE):
                return await answer
        finally:
            del self._answers[number]

    async def listen(self) -> None:
        """Hands messages on until the browser ends."""
        async for received in self._socket:
            message = json.loads(received.data)
            if "id" not in message:
                if page := self._pages.get(message.get("sessionId", "")):
                    page.notice(message["method"], message["params"])
            elif answer := self._answers.get(message["id"]):
                if "error" in message:
                    answer.set_exception(RuntimeError(f"{message['error']['message']}"))
                elif not answer.done():
                    answer.set_result(message["result"])


class Page:
    """One page. `reported` are the errors and violations that it has noted."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self.target = target
        self.reported: list[str] = []
        self._expected: set[str] = set()

    @property
    def problems(self) -> list[str]:
        """Returns what the page reported and no test expects."""
        return [each for each in self.reported if not any(text in each for text in self._expected)]

    def expect(self, text: str) -> None:
        """Accepts reports with this text, also those that are still on their way."""
        self._expected.add(text)

    async def send(self, method: str, parameters: Any = None) -> Any:
        return await self._browser.send(method, parameters, self._session)

    async def open(self, url: str) -> None:
        """Goes to an address and waits until the document is complete."""
        await self.send("Page.navigate", {"url": url})
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def close(self) -> None:
        _CLOSED.add(self.target)
        await self._browser.send("Target.closeTarget", {"targetId": self.target})

    async def leave(self) -> None:
        """Goes to an empty page, and forgets what the present one has stored. What a session emulates ends with it."""
        await self.value("location.protocol === 'about:' || (localStorage.clear(), sessionStorage.clear())")
        await self.point(-1, -1)
        await self.send("Page.navigate", {"url": "about:blank"})

    async def value(self, expression: str) -> Any:
        """Evaluates JavaScript, which may be a promise, and returns its value as JSON. Raises AssertionError."""
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = await self.send("Runtime.evaluate", asked)
        if "exceptionDetails" in answer:
            detail = answer["exceptionDetails"]
            raise AssertionError(detail.get("exception", {}).get("description", detail["text"]))
        return answer["result"].get("value")

    async def until(self, expression: str, patience: float = PATIENCE) -> Any:
        """Waits until the expression is true or an element, and what came with it is drawn; returns its value."""
        try:
            async with asyncio.timeout(patience):
                while True:
                    with contextlib.suppress(RuntimeError):  # a page that is being replaced has no context
                        value = await self.value(expression)
                        if value or value == {}:  # an element becomes an empty object
                            await self.value(_DRAWN)
                            return value
                    await asyncio.sleep(0.05)
        except TimeoutError:
            text = await self.value("document.body.innerText")
            raise AssertionError(f"never true: {expression}; {self.problems}; the page shows: {text[:2000]}") from None

    async def text(self, selector: str) -> str:
        """Returns the text of the first element that matches, as it is shown."""
        found: str = await self.value(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        return found

    async def texts(self, selector: str) -> list[str]:
        """Returns the texts of all elements that match."""
        found: list[str] = await self.value(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.innerText)"
        )
        return found

    async def click(self, selector: str) -> None:
        """Clicks on the middle of the first element that matches, with a mouse."""
        place = await self.until(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)}); if (!found) return null;"
            "found.scrollIntoView({block: 'nearest'}); const box = found.getBoundingClientRect();"
            "return {x: box.x + box.width / 2, y: box.y + box.height / 2}; })()"
        )
        await self.point(place["x"], place["y"])
        for kind in ("mousePressed", "mouseReleased"):
            event = {"type": kind, "button": "left", "clickCount": 1, **place}
            await self.send("Input.dispatchMouseEvent", event)

    async def point(self, x: float, y: float) -> None:
        """Moves the mouse."""
        await self.send("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})

    async def wheel(self, pixels: float) -> None:
        """Turns the wheel of the mouse over the middle of the page."""
        event = {"type": "mouseWheel", "x": 600, "y": 400, "deltaX": 0, "deltaY": pixels}
        await self.send("Input.dispatchMouseEvent", event)

    async def press(self, *keys: str) -> None:
        """Types keys, such as "j", "Enter" or "ArrowDown"."""
        for key in keys:
            name, code, text = _KEYS.get(key, (key, 0, key))
            event = {"key": name, "windowsVirtualKeyCode": code}
            await self.send("Input.dispatchKeyEvent", event | {"type": "keyDown", "text": text})
            await self.send("Input.dispatchKeyEvent", event | {"type": "keyUp"})

    async def resize(self, width: int, height: int, scale: float = 1) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        await self.send("Emulation.setDeviceMetricsOverride", size)

    async def prefer(self, *, dark: bool, **features: str) -> None:
        """Sets the color scheme of the system, and other media features."""
        named = {"prefers-color-scheme": "dark" if dark else "light"}
        named |= {name.replace("_", "-"): value for name, value in features.items()}
        media = [{"name": name, "value": value} for name, value in named.items()]
        await self.send("Emulation.setEmulatedMedia", {"features": media})

    async def screenshot(self, file: Path, *, whole: bool = False) -> None:
        """Writes a PNG of what is in sight, or of the whole page."""
        answer = await self.send("Page.captureScreenshot", {"captureBeyondViewport": whole})
        await asyncio.to_thread(file.write_bytes, base64.b64decode(answer["data"]))

    def notice(self, method: str, event: Any) -> None:
        """Takes an event of the browser."""
        if method == "Runtime.exceptionThrown":
            detail = event["exceptionDetails"]
            self.reported.append(detail.get("exception", {}).get("description", detail["text"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.reported.append(" ".join(str(each.get("value", each.get("description"))) for each in event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.reported.append(f"{event['entry']['text']} {event['entry'].get('url', '')}".strip())


@contextlib.contextmanager
def launched() -> Iterator[str]:
    """Starts Chromium, yields the address of its socket, and ends it with all its processes. Blocks."""
    found = command()
    assert found is not None, ABSENT
    with tempfile.TemporaryDirectory(prefix="hpad-chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [found, *_FLAGS, f"--user-data-dir={profile}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
            start_new_session=True,
        )
        try:
            yield _address(Path(profile), process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """Waits for the address of the browser's socket, which it writes into its profile."""
    file, end = profile / "DevToolsActivePort", time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError, ValueError):
            port, path = file.read_text().split()
            return f"ws://127.0.0.1:{port}{path}"
        time.sleep(0.05)
    raise RuntimeError(f"Chromium has not started (status {process.returncode})")


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[Browser]:
    """Connects to a browser. Its pages are closed at the end, and their storage is dropped."""
    async with (
        aiohttp.ClientSession(trust_env=False) as session,
        session.ws_connect(address, max_msg_size=0) as socket,
    ):
        browser = Browser(socket)
        listening = asyncio.create_task(browser.listen())
        try:
            async with browser:
                yield browser
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
