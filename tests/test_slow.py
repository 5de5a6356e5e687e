"""What is listed as slow is there: a test that is renamed must not fall out of both runs."""

from pathlib import Path

import pytest

NAMES = [line for line in Path(__file__).with_name("slow.txt").read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("file", sorted({name.partition("::")[0] for name in NAMES}))
def test_they_exist(file):
    source = (Path(__file__).parent.parent / file).read_text()
    for name in NAMES:
        if name.startswith(f"{file}::"):
            assert f"def {name.partition('::')[2].partition('[')[0]}(" in source, name
