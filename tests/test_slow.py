"""What is listed as slow is there: a test that is renamed must not fall out of both runs."""

from pathlib import Path

import pytest

NAMES = [line for line in Path(__file__).with_name("slow.txt").read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("file", sorted({name.partition("::")[0] for name in NAMES}))
def test_they_exist(file):
    source = (Path(__file__).parent.parent / file).read_text()
    for name in NAMES:
        if name.startswith(f"{file}::"):
            thing = name.partition("::")[2].partition("[")[0].rpartition(".")[2]  # a test, or what has the example
            assert f"def {thing}(" in source or f"class {thing}(" in source, name
