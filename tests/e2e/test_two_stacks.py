"""A second stack beside the first, in bfloat16 and with KV over TCP; its end leaves nothing of it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.e2e.stack import MODEL, Stack


def _processes_of(stack: Stack) -> list[str]:
    """Command lines of processes that belong to a stack: by their working folder or their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            about = " ".join([*process.cmdline(), process.cwd(), *process.environ().values()])
            named = str(stack.project) in about or str(stack.run_folder) in about
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if named:
            found.append(" ".join(process.cmdline()))
    return found


def _shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def test_two_stacks_side_by_side(stack: Stack, tmp_path: Path) -> None:
    segments = _shared_memory()
    second = Stack(tmp_path, "second", {"model": {"dtype": "bfloat16"}, "kv": {"transport": "tcp"}})
    try:
        second.up()
        assert list(second.run_folder.glob("*.sock"))
        assert len(_processes_of(second)) >= 7  # supervisord and six roles
        for one in (stack, second):
            answer = one.client().chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "What is the capital of France? Answer in one word."}],
                temperature=0,
                max_tokens=20,
            )
            assert "Paris" in answer.choices[0].message.content
        assert second.metric("decode-worker-0", "diphase_kv_transfers_total", transport="tcp", outcome="ok") == 1
        with pytest.raises(Exception, match="401"):
            second.client(default_headers={"Authorization": f"Bearer {stack.api_key}"}).models.list()
    finally:
        second.down()
    assert not _processes_of(second)
    assert not second.run_folder.exists()
    assert _shared_memory() <= segments
    assert stack.client().models.list().data, "the first stack was touched"


def test_nothing_is_written_beside_the_stack_file(stack: Stack) -> None:
    """The configuration that is read is stacks/Pulumi.<stack>.yaml, and no stray file appears in the root."""
    assert {path.name for path in stack.project.iterdir()} == {"Pulumi.yaml", "infra", "stacks", ".diphase"}
    assert [path.name for path in (stack.project / "stacks").iterdir()] == [stack.config_file.name]
