"""Runs the tests marked `versions` on the installed wheel, in one environment for each Python here.

    python tests/versions.py [3.11] [3.12] [3.13] [oldest]

The newest dependencies are installed, whatever `constraints.txt` says; on 3.12 JAX is held at 0.11,
since Python 3.11 ends with JAX 0.10 and 3.13 takes 0.12. The environment `oldest` has Python 3.11
and every lower bound of `pyproject.toml` itself.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".venv-versions"
PYTHONS = {"3.11": "3.11", "3.12": "3.12", "3.13": "3.13", "oldest": "3.11"}
PINS = {"3.12": ["jax==0.11.2"]}
RUNS = (  # the first commands of a user are the only slow test that is run
    ["-m", "versions and not peer and not network and not slow", "tests"],
    ["-m", "versions and slow", "tests/test_versions.py"],
)


def lower_bounds(pyproject: str) -> list[str]:
    """Every `name>=version` as a pin, but for what only the benchmarks need."""
    project = tomllib.loads(pyproject)["project"]
    extras = project["optional-dependencies"]
    needs = [*project["dependencies"], *extras["text"], *extras["test"]]
    found = (re.match(r"([\w-]+)(?:\[[\w,]*\])?>=([\w.]+)", need) for need in needs)
    return [f"{bound[1]}=={bound[2]}" for bound in found if bound]


def find_python(version: str) -> Path | None:
    """An interpreter of a version, on the path or among those of pyenv."""
    numbers = lambda path: [int(part) for part in re.findall(r"\d+", path.parts[-3])]
    built = (Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")
    on_path = shutil.which(f"python{version}")
    for path in [*([Path(on_path)] if on_path else []), *sorted(built, key=numbers, reverse=True)]:
        ask = [path, "-c", "import sys, ensurepip; print(sys.version)"]
        asked = subprocess.run(ask, capture_output=True, text=True)
        if asked.returncode == 0 and asked.stdout.startswith(f"{version}."):
            return path
    return None


def build_wheel() -> Path:
    """A wheel of the working tree."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.whl"):
        old.unlink()
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--wheel-dir", FOLDER, ROOT], check=True)
    (wheel,) = FOLDER.glob("*.whl")
    return wheel


def install(name: str, python: Path, wheel: Path) -> Path:
    """Makes an environment with the wheel and its dependencies; returns its interpreter."""
    inside = FOLDER / name / "bin" / "python"
    if not inside.exists():
        subprocess.run([python, "-m", "venv", FOLDER / name], check=True)
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    how = ["--upgrade", "--upgrade-strategy", "eager", *PINS.get(name, [])]
    if name == "oldest":
        oldest = FOLDER / "oldest.txt"
        oldest.write_text("\n".join(lower_bounds((ROOT / "pyproject.toml").read_text())))
        how = ["--constraint", oldest]
    subprocess.run([*pip, *how, f"thetax[test] @ {wheel.as_uri()}"], check=True)
    subprocess.run(
        [*pip, "--no-deps", "--force-reinstall", wheel], check=True
    )  # same version, new code
    return inside


def passes(inside: Path) -> bool:
    """Whether all marked tests pass; prints which thetax they test and the versions."""
    environ = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")
    }
    show = "import jax, numpy, scipy, thetax; print(thetax.__file__)\n"
    show += "for part in (jax, numpy, scipy): print(part.__name__, part.__version__, flush=True)"
    subprocess.run([inside, "-c", show], cwd=FOLDER, env=environ, check=True)
    pytest = [inside.parent / "pytest", "-n", "0", "-p", "no:cacheprovider"]
    pytest.append("--ignore-glob=*/test_bench_*.py")  # the wheel has no benchmarks
    codes = [subprocess.run([*pytest, *run], cwd=ROOT, env=environ).returncode for run in RUNS]
    return not any(codes)


def main(names: list[str]) -> int:
    unknown = set(names) - set(PYTHONS)
    if unknown:
        print(
            f"no environment {', '.join(sorted(unknown))}; there are {', '.join(PYTHONS)}",
            file=sys.stderr,
        )
        return 2
    wheel = build_wheel()
    results = {}
    for name in names or PYTHONS:
        python = find_python(PYTHONS[name])
        began = time.monotonic()
        if python is None:
            results[name] = f"skipped: no Python {PYTHONS[name]} found"
            continue
        print(f"== {name}: {python}", flush=True)
        passed = passes(install(name, python, wheel))
        results[name] = f"{'passed' if passed else 'FAILED'} in {time.monotonic() - began:.0f} s"
    print("\n".join(f"{name}: {result}" for name, result in results.items()))
    first = [result.split()[0] for result in results.values()]
    return int("FAILED" in first or "passed" not in first)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
