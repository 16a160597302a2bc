"""Writes the name of every signal that it hears, a line each. Leaves alone those that are named, and what was ignored at its start.

usage: listener.py FILE [SIGNAL...]
"""

import os
import resource
import signal
import sys

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
end = signal.SIGRTMIN + 5
# Python itself ignores these, and takes SIGINT.
of_python = {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT}
with open("/proc/self/status") as status:
    ignored = int(next(line for line in status if line.startswith("SigIgn:")).split()[1], 16)
others = {signal.Signals[name] for name in sys.argv[2:]} | {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}
heard, wakes = os.pipe()
os.set_blocking(wakes, False)
signal.set_wakeup_fd(wakes)
for number in set(signal.Signals) - others:
    was_ignored = ignored >> (number - 1) & 1
    if number in of_python or not was_ignored:
        signal.signal(number, lambda *_: None)
signal.signal(end, lambda *_: None)
os.write(file, f"ready {os.getpid()}\n".encode())
while True:
    for number in os.read(heard, 64):
        if number == end:
            sys.exit(7)
        os.write(file, f"{signal.Signals(number).name}\n".encode())
