"""Starts a program as a shell does that has no terminal: in a session without one, in a process group of its own, with a parent
in another group. Prints the program's process id, and its end: a status, or the negative number of a signal.

usage: launcher.py SIGNAL|- PROGRAM [ARGUMENT...]; that signal is ignored in the program.
"""

import os
import resource
import signal
import sys

ignored, *program = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
os.setsid()
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    if ignored != "-":
        signal.signal(signal.Signals[ignored], signal.SIG_IGN)
    os.execvp(program[0], program)
print(child, flush=True)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), flush=True)
