"""A real agent for tests: no fake that is kinder than the truth."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from . import _http

START_DEADLINE = 30.0
"""How long an agent may take until it answers, seconds."""
STOP_DEADLINE = 15.0
"""How long an agent may take to end, seconds."""


class Agent:
    """An agent of its own in `directory`. `settings` are keys of its configuration, such as
    `{"leader.ttl": "2s"}`; `upstream` is a store, such as a Redis; the default keeps everything itself."""

    def __init__(
        self, directory: str | os.PathLike[str], settings: Mapping[str, str] | None = None, upstream: str | None = None
    ) -> None:
        self.directory = Path(directory)
        self.socket = str(self.directory / "api.sock")
        self._environment = {
            key: value for key, value in os.environ.items() if not key.startswith(("TENURED_", "TENURE_"))
        }
        for key, value in (settings or {}).items():
            self._environment["TENURED_" + key.upper().replace(".", "_")] = value
        if upstream:
            self._environment["TENURED_UPSTREAM"] = upstream
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Agent:
        """Starts it and waits until it answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        arguments = ["--socket", self.socket, "--runtime-dir", str(self.directory / "run")]
        arguments += ["--state-dir", str(self.directory / "state")]
        with open(self.directory / "agent.log", "ab") as log:
            self._process = subprocess.Popen(
                [program("tenured"), *arguments], env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_DEADLINE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the agent did not start: {self.log()}")
            time.sleep(0.005)
        return self

    def send(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ends it by a signal and waits for its end: SIGTERM releases everything, SIGKILL is a crash."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"the agent did not end: {self.log()}") from None

    def restart(self) -> None:
        """As a service manager does it: no hold is lost."""
        self.stop(signal.SIGUSR2)
        self.start()

    def crash(self) -> None:
        """SIGKILL, and a new one in its place: no hold is lost that is still valid then."""
        self.stop(signal.SIGKILL)
        self.start()

    def freeze(self) -> None:
        """Stops it, as a debugger or a paused machine does; it stands still when this returns."""
        if self._process is not None:
            self.send(signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def revoke(self, kind: str, name: str) -> None:
        """Takes a resource away from its holder, as an administrator."""
        command = [program("tenure"), "--socket", self.socket, "revoke", kind, name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=self._environment)

    def log(self) -> str:
        """The end of its log."""
        return (self.directory / "agent.log").read_text(errors="replace")[-4000:]

    def _answers(self) -> bool:
        # With the plainest client: the package itself may be under test.
        import socket

        response = _http.Response()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1.0)
            try:
                connection.connect(self.socket)
                connection.sendall(_http.request("GET", "/healthz"))
                while not response.complete:
                    response.feed(connection.recv(65536))
            except (OSError, _http.NotHttp):
                return False
        return response.status == 200

    def __enter__(self) -> Agent:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.send(signal.SIGCONT)
        self.stop()


def program(name: str) -> str:
    """The path of `tenured` or `tenure`: the variable TENURED or TENURE, else a build in target/ of the
    current directory or above, else PATH."""
    told = os.environ.get(name.upper())
    if told:
        return told
    for directory in (Path.cwd(), *Path.cwd().parents):
        built = directory / "target" / "debug" / name
        if built.is_file():
            return str(built)
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"there is no {name}: install it, or name it in {name.upper()}")
    return found
