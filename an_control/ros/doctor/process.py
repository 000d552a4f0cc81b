"""The wiring doctor's process as a policy node uses it: requests in, findings out.

The doctor needs seconds of a processor. In the node's process it would delay ticks (control steps),
even on another thread, because Python runs one thread at a time. So it runs in a process of its
own at low priority, which is started when it is first needed. A thread of the node talks to it.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from an_control.system.interrupts import wrap_command_to_end_with_parent

START = (
    "import os, sys\n"
    "nice = max(10, os.getpriority(os.PRIO_PROCESS, 0))\n"
    "os.setpriority(os.PRIO_PROCESS, 0, nice)\n"
    "from an_control.commissioning.doctor.worker import main\n"
    "sys.exit(main())"
)
"""The program of the process. It lowers its priority before its imports, which take a second. This
module does not import the doctor, because a node that never needs it should not hold its code."""
LENGTH_BYTES = 8
ANSWER_S = 120.0
"""Seconds in which the process must answer a request; else it is ended. The longest examination was
seen to take a tenth of that beside other work."""
END_S = 2.0
"""Seconds in which the process must end once it is closed; then it is killed."""

Request = Callable[[], tuple[dict[str, Any], dict[str, np.ndarray]]]
"""Returns the values of a request: what is written as JSON, and arrays by name."""


class DoctorProcess:
    """A separate process that examines recorded ticks for mistakes in the wiring.

    No method waits for the process. All methods must be called from the same thread.
    """

    def __init__(self) -> None:
        self.failure = ""
        """Why the process has ended although it should not; "" while it has not."""
        self._changed = threading.Condition()
        self._request: Request | None = None
        self._answer: list[dict[str, Any]] | None = None
        self._closed = False
        self._busy = False
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request was sent whose answer has not been fetched yet."""
        return self._busy

    @property
    def pid(self) -> int | None:
        """Id of the process, None if it has not been started."""
        return None if self._process is None else self._process.pid

    def send_request(self, request: Request) -> None:
        """Let the process examine recorded ticks; start the process if it does not run yet.

        The caller must fetch the answer with `pop_answer` before it sends the next request.

        Args:
            request: Function that returns the content of the request. It is called on another
                thread.
        """
        with self._changed:
            self._request, self._busy = request, True
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._exchange_requests_until_closed, name="doctor", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def pop_answer(self) -> list[dict[str, Any]] | None:
        """Return the answer to the last request and forget it; None if there is no answer yet.

        The answer is a list of findings as mappings, which is empty if nothing was found.
        """
        answer = self._answer
        if answer is not None:
            self._answer, self._busy = None, False
        return answer

    def fail(self, reason: str) -> None:
        """End the process because of an error elsewhere, and store the reason in `failure`."""
        self.failure = self.failure or reason
        self.close()

    def close(self) -> None:
        """End the process, without waiting for it."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._process is not None:
            self._process.kill()

    def _exchange_requests_until_closed(self) -> None:
        """Start the process, and pass requests and answers until `close` is called or it ends.

        This runs on a thread of its own.
        """
        try:
            process = self._process = self._start_process()
            while (request := self._wait_for_request()) is not None:
                self._answer = self._send_request_and_read_answer(process, *request())
        except Exception as error:  # whatever it is, the robot continues without the doctor
            if not self._closed:
                self.failure = self._explain_why_process_ended(error)
        finally:
            self._busy = False
            if self._process is not None:
                self._end_process(self._process)

    @staticmethod
    def _start_process() -> subprocess.Popen[bytes]:
        command = wrap_command_to_end_with_parent([sys.executable, "-c", START])
        one_thread = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **one_thread},
            start_new_session=True,  # Ctrl-C at the node's terminal is not for it
        )

    def _wait_for_request(self) -> Request | None:
        """Wait for the next request and return it; return None once `close` has been called."""
        with self._changed:
            self._changed.wait_for(lambda: self._request is not None or self._closed)
            request, self._request = self._request, None
            return None if self._closed else request

    @staticmethod
    def _send_request_and_read_answer(
        process: subprocess.Popen[bytes], values: dict[str, Any], arrays: dict[str, np.ndarray]
    ) -> list[dict[str, Any]]:
        """Send a request to the process, wait for its answer, and return that.

        Args:
            process: The process.
            values: Values of the request by name, which are written as JSON.
            arrays: Arrays of the request by name.

        Returns:
            The findings; see `worker.convert_finding_to_json_values`.

        Raises:
            EOFError: The process has ended.
        """
        assert process.stdin is not None and process.stdout is not None
        content = io.BytesIO()
        np.savez(content, about=np.array(json.dumps(values)), **arrays)  # type: ignore[arg-type]
        body = content.getvalue()
        process.stdin.write(len(body).to_bytes(LENGTH_BYTES, "little") + body)
        process.stdin.flush()
        guard = threading.Timer(ANSWER_S, process.kill)
        guard.daemon = True
        guard.start()
        try:
            line = process.stdout.readline()
        finally:
            guard.cancel()
        if not line.endswith(b"\n"):
            raise EOFError
        answer: list[dict[str, Any]] = json.loads(line)
        return answer

    def _explain_why_process_ended(self, error: Exception) -> str:
        """Return why the process does not answer any more, as text.

        Args:
            error: The error that occurred while the process was started or answered.
        """
        if self._process is None:
            return f"it could not be started: {error}"
        with suppress(subprocess.TimeoutExpired):
            status = self._process.wait(END_S)
            return f"its process has ended with status {status}"
        return repr(error)

    @staticmethod
    def _end_process(process: subprocess.Popen[bytes]) -> None:
        """Kill the process, wait until it has ended, and close its pipes."""
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
