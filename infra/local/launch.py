"""Becomes the program that a file describes: supervisord's own configuration cannot hold every path and value.

Run as a script without site-packages, so it costs some ten milliseconds: `python -I -S launch.py FILE`.
"""

import json
import os
import sys


def main() -> None:
    """Change to the program's folder and replace this process by it."""
    with open(sys.argv[1], encoding="utf-8") as handle:
        program = json.load(handle)
    os.chdir(program["directory"])
    command = program["command"]
    os.execvpe(command[0], command, {**os.environ, **program["environment"]})  # noqa: S606 - no shell is meant


if __name__ == "__main__":
    main()
