"""Temporary directories end with their process."""

import stat
import subprocess
import sys
from pathlib import Path

PROGRAM = """
from polydomo.scratch import scratch_directory

made = scratch_directory("duckdb")
(made / "file").write_text("spilled")
print(oct(made.stat().st_mode), made)
"""


def test_a_scratch_directory_is_private_and_removed_at_the_end_of_the_process(tmp_path: Path) -> None:
    environment = {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, timeout=60)
    mode, path = done.stdout.split(maxsplit=1)
    assert int(mode, 8) == stat.S_IFDIR | 0o700, done.stderr
    assert path.startswith(f"{tmp_path}/polydomo-duckdb-")
    assert list(tmp_path.iterdir()) == []
