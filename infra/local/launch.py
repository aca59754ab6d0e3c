"""Becomes the program that a file describes: supervisord's own configuration cannot hold every path and value.

The program holds a lock for as long as it lives, so that its end can be waited for even where supervisord was killed.
Run as a script without site-packages, so it costs some ten milliseconds: `python -I -S launch.py FILE LOCK`.
"""

import fcntl
import json
import os
import sys


def main() -> None:
    """Change to the program's folder and replace this process by it."""
    with open(sys.argv[1], encoding="utf-8") as handle:
        program = json.load(handle)
    lock = os.open(sys.argv[2], os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_SH)
    os.set_inheritable(lock, True)
    os.chdir(program["directory"])
    command = program["command"]
    os.execvpe(command[0], command, {**os.environ, **program["environment"]})  # noqa: S606 - no shell is meant


if __name__ == "__main__":
    main()
