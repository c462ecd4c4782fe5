"""A time-boxed run of the fuzzing that is led by coverage; `make fuzz` is the long one."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 30


def guided(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.guided", *arguments],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_nothing_is_found(tmp_path: Path) -> None:
    status, said = guided(tmp_path, "--seconds", str(SECONDS), "--seed", "1")
    assert status == 0, said[-4000:]
    runs = re.search(r"Done (\d+) runs", said)
    assert runs is not None
    assert int(runs[1]) > 0


def test_a_fault_is_found_and_kept(tmp_path: Path) -> None:
    status, said = guided(tmp_path, "--planted", "--seconds", str(SECONDS), "--seed", "1")
    assert status != 0
    assert "target: planted" in said
    (kept,) = (tmp_path / ".fuzz").iterdir()
    assert kept.read_bytes()[2:3] == b"!"
