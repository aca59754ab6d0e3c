"""Software bills of materials and vulnerability scans of the images, by syft and trivy where they are installed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

from scripts.faults import OperationFailed
from scripts.steps import SetUpError, Step, run, say

SEVERITIES = ("low", "medium", "high", "critical")


class Inventory:
    """Writes ROLE.spdx.json and ROLE.vulnerabilities.json into `folder` for what is installed.

    `fail_on`, the least severity that stops a push, makes a scan that cannot be done a failure, too.
    """

    def __init__(self, folder: Path, fail_on: str | None = None) -> None:
        self._folder = folder
        self._fail_on = fail_on
        self._syft, self._trivy = shutil.which("syft"), shutil.which("trivy")
        self.files: list[Path] = []
        if not (self._syft or self._trivy):
            say("notice: neither syft nor trivy is on PATH, so no bill of materials is written and nothing is scanned")
        if fail_on and not self._trivy:
            raise OperationFailed("--fail-on needs trivy on PATH: install it, or leave the option out")

    def take(self, role: str, image: str) -> None:
        """What is in an image that docker holds; raises OperationFailed where `fail_on` says so."""
        if not (self._syft or self._trivy):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        materials, found = self._folder / f"{role}.spdx.json", self._folder / f"{role}.vulnerabilities.json"
        if self._syft:
            self._run([self._syft, "scan", f"docker:{image}", "--output", f"spdx-json={materials}"], materials)
        elif self._trivy:
            self._run([self._trivy, "image", "--format", "spdx-json", "--output", str(materials), image], materials)
        if self._trivy and self._run([self._trivy, "image", "--format", "json", "--output", str(found), image], found):
            self._judge(role, found)

    def _run(self, command: list[str], file: Path) -> bool:
        try:
            with Step(f"{Path(command[0]).name} → {file}"):
                run(command)
        except SetUpError as error:
            if self._fail_on:
                raise OperationFailed(str(error)) from None
            say(f"warning: {error}")
            return False
        self.files.append(file)
        return True

    def _judge(self, role: str, file: Path) -> None:
        results = json.loads(file.read_text()).get("Results") or []
        count = Counter(
            str(found.get("Severity", "unknown")).lower()
            for result in results
            for found in result.get("Vulnerabilities") or []
        )
        shown = ", ".join(f"{count[name]} {name}" for name in reversed(SEVERITIES))
        say(f"    {role}: {shown}")
        if self._fail_on:
            stopping = SEVERITIES[SEVERITIES.index(self._fail_on) :]
            if any(count[name] for name in stopping):
                raise OperationFailed(
                    f"{role} has vulnerabilities ({shown}); {file} names them. Nothing of it was pushed"
                )
