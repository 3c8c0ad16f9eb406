"""What is installed, pinned and shipped agrees with what the project says of itself."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import mooncake_companion

ROOT = Path(__file__).parents[1]
TESTED = ("3.11.0", "3.12.0", "3.13.0")

# Written in pieces, so that this file does not contain what it looks for.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("anaconda", "org"),
        ("anaconda", "com"),
        ("yarnpkg", "com"),
        ("deb", "debian", "org"),
    )
)
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:home|root|work|Users)/\w")


class Pin(NamedTuple):
    """One entry of the lock."""

    name: str
    version: str
    marker: Marker | None
    hashes: int


@cache
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@cache
def lock() -> tuple[Pin, ...]:
    """Every entry of requirements.lock; what is neither entry, hash nor comment fails here."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    pins = []
    for entry in re.split(r"\n(?=\S)", "\n".join(lines)):
        head, *hashes = [part.strip() for part in entry.split("\\\n")]
        requirement = Requirement(head)
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", head
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), head
        pins.append(
            Pin(canonicalize_name(requirement.name), specifier.version, requirement.marker, len(hashes))
        )
    return tuple(pins)


def pinned(python: str) -> dict[str, str]:
    """Versions that the lock gives a Linux machine with this Python."""
    environment = {
        "python_version": python.rpartition(".")[0],
        "python_full_version": python,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "sys_platform": "linux",
    }
    fitting = [pin for pin in lock() if pin.marker is None or pin.marker.evaluate(environment)]
    assert len({pin.name for pin in fitting}) == len(fitting), "two pins for one package"
    return {pin.name: pin.version for pin in fitting}


def direct(*extras: str) -> dict[str, SpecifierSet]:
    """Ranges in pyproject.toml of what the project uses itself."""
    lines = [
        *project()["dependencies"],
        *(each for extra in extras for each in project()["optional-dependencies"][extra]),
    ]
    return {canonicalize_name(r.name): r.specifier for r in map(Requirement, lines)}


def conda_environment() -> tuple[str, list[str]]:
    """Version of Python and lines for pip in environment.yml."""
    *conda, pip = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    (python,) = (line.removeprefix("python=") for line in conda if line.startswith("python="))
    return python, pip["pip"]


def committed_files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def run_python(code: str, **environment: str) -> str:
    """Output of `code` in a new interpreter, which must end well."""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_each_locked_package_has_a_hash() -> None:
    assert [pin.name for pin in lock() if not pin.hashes] == []


def test_nothing_but_the_hashed_lock_is_installed_and_audited() -> None:
    set_up = (ROOT / "tools" / "set-up").read_text("utf-8")
    installs = [line.strip() for line in set_up.splitlines() if re.match(r"install --", line)]
    assert installs == [
        "install --require-hashes -r requirements.lock",
        "install --no-deps --no-build-isolation -e .",
    ]
    audit = (ROOT / "tools" / "audit").read_text("utf-8").replace("\\\n", "")
    assert re.search(r"-m pip_audit --require-hashes .*--strict .*-r requirements\.lock", audit)
    assert len(lock()) > len(direct("book", "dask", "dev", "sweep"))


def test_the_lock_names_no_address() -> None:
    assert "://" not in (ROOT / "requirements.lock").read_text(encoding="utf-8")


@pytest.mark.parametrize("python", TESTED)
def test_the_lock_holds_what_the_project_asks_for(python: str) -> None:
    pins = pinned(python)
    assert {
        name: (pins.get(name), str(wanted))
        for name, wanted in direct("book", "dask", "dev", "sweep").items()
        if name not in pins or pins[name] not in wanted
    } == {}, "run: make lock"


def test_what_runs_here_is_what_the_lock_says() -> None:
    """In the environment that `make` sets up; another one is skipped."""
    if not (Path(sys.prefix) / "set-up.stamp").exists():
        pytest.skip("this environment was not made by tools/set-up")
    from importlib.metadata import version

    pins = pinned(".".join(map(str, sys.version_info[:3])))
    assert {name: version(name) for name in direct("book", "dask", "dev", "sweep")} == {
        name: pins[name] for name in direct("book", "dask", "dev", "sweep")
    }


def test_the_conda_environment_agrees_with_the_lock() -> None:
    python, lines = conda_environment()
    assert f"{python}.0" in TESTED
    *requirements, editable = lines
    assert editable == "-e ."
    stated = {canonicalize_name(r.name): str(r.specifier) for r in map(Requirement, requirements)}
    pins = pinned(f"{python}.0")
    assert stated == {name: f"=={pins[name]}" for name in direct("book")}


def test_every_tested_python_is_declared() -> None:
    declared = {each.rpartition(" ")[2] for each in project()["classifiers"] if "Python :: 3." in each}
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "book.yml").read_text(encoding="utf-8"))
    minors = {python.removesuffix(".0") for python in TESTED}
    assert declared == minors
    assert set(workflow["jobs"]["test"]["strategy"]["matrix"]["python"]) == minors
    assert all(python in SpecifierSet(project()["requires-python"]) for python in TESTED)


def test_the_citation_has_the_package_s_version_and_licence() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == mooncake_companion.__version__
    assert citation["license"] == project()["license"]
    assert len(citation["references"]) == 2


def test_the_readme_names_the_commands_that_set_everything_up() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make book" in readme
    assert "make test" in readme


def test_imports_point_one_way() -> None:
    report = run_python(
        "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))",
        NO_COLOR="1",
    )
    assert re.search(r"[1-9]\d* kept, 0 broken", report), report


def test_importing_the_package_loads_no_heavy_library() -> None:
    loaded = run_python("import sys, mooncake_companion; print(*sys.modules)").split()
    assert {"numpy", "pandas", "altair", "scipy"}.isdisjoint(loaded)


def test_no_committed_file_names_a_registry_or_a_path_of_one_machine() -> None:
    found = []
    for path in committed_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not a text
        hits = [host for host in REGISTRY_HOSTS if host in text] + MACHINE_PATH.findall(text)
        found += [f"{path.relative_to(ROOT)}: {hit}" for hit in hits]
    assert found == []


@pytest.mark.slow
def test_the_wheel_holds_the_data_and_the_type_marker(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"mooncake_companion-{mooncake_companion.__version__}-py3-none-any")
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    package = unpacked / "mooncake_companion"
    shipped = [path for path in committed_files() if path.is_relative_to(ROOT / "data")]
    assert shipped
    for path in shipped:
        assert (package / path.relative_to(ROOT)).read_bytes() == path.read_bytes(), path
    for path in committed_files():
        if path.is_relative_to(ROOT / "src"):
            assert (unpacked / path.relative_to(ROOT / "src")).is_file(), path
    assert (package / "py.typed").is_file()
    # Without a checkout around it, the package finds its own data.
    found = run_python(
        "from mooncake_companion.datafiles import data_path; print(data_path('README.md'))",
        PYTHONPATH=str(unpacked),
    )
    assert Path(found.strip()) == package / "data" / "README.md"
