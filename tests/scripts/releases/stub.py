"""A project whose releases are stand-ins: each has a `diphase` that notes its calls and does what it is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.scripts.releases import gits

# Run in the worktree in place of the real set-up: makes the `diphase` of this commit.
BOOTSTRAP = f"""\
from pathlib import Path

if Path("broken").exists():
    raise SystemExit("no packages")
program = Path(".venv/bin/diphase")
program.parent.mkdir(parents=True, exist_ok=True)
program.write_text("#!{sys.executable}\\n" + Path("program.py").read_text())
program.chmod(0o755)
"""
PROGRAM = """\
import json, os, signal, sys, time
from pathlib import Path

project = Path(os.environ["DIPHASE_PROJECT"])
told = json.loads((project / "told.json").read_text()).get(sys.argv[1], {})
read = sys.argv[sys.argv.index("--config-file") + 1] if "--config-file" in sys.argv else None
note = {"arguments": sys.argv[1:], "config": read and Path(read).read_text(), "misled": "PYTHONPATH" in os.environ}
with open(project / "calls.jsonl", "a") as calls:
    calls.write(json.dumps(note) + "\\n")
if told.get("hang"):
    heard = []
    signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    (project / "hangs").touch()
    while not heard:
        time.sleep(0.02)
    time.sleep(0.3)  # a second interrupt would come now
    (project / "interrupts").write_text(str(len(heard)))
    sys.exit(130)
if sys.argv[1] == "preview":
    print(json.dumps({"changes": {}, "steps": told.get("steps", [])}))
sys.exit(told.get("status", 0))
"""


class Project:
    """A repository with commits of such releases; `told` says what each subcommand does."""

    def __init__(self, folder: Path) -> None:
        self.folder = gits.repository(folder)

    def commit(self, title: str, **files: str) -> str:
        """Another release."""
        files = {
            "scripts____init___py": "",
            "scripts__bootstrap_py": BOOTSTRAP,
            "scripts__releases__process_py": "",
            "program_py": PROGRAM,
            **files,
        }
        (self.folder / ".gitignore").write_text("/.venv/\n/.diphase/\n/told.json\n/calls.jsonl\n/hangs\n/interrupts\n")
        return gits.commit(self.folder, title, **files)

    def tell(self, **subcommands: object) -> None:
        """What `preview`, `up` and `verify` are to do: {"status": 1}, {"steps": […]}, {"hang": true}."""
        (self.folder / "told.json").write_text(json.dumps(subcommands))
        (self.folder / "calls.jsonl").unlink(missing_ok=True)

    @property
    def calls(self) -> list[dict[str, object]]:
        """How the releases were called, in order."""
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def releases(self) -> list[Path]:
        """The folders of releases that are there."""
        folder = self.folder / ".diphase" / "releases"
        return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
