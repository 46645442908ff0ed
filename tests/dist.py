"""Builds the wheel and the sdist, and checks what would be published: `make dist`.

    python -m tests.dist                  build into dist/, check, install into an empty environment, run the demo there
    python -m tests.dist --tag v0.1.0     the same, and the version has to be that of the tag

The wheel is built from the sdist, so the sdist is complete. Needs git, and the package index for the empty environment.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

from packaging.metadata import Metadata
from packaging.specifiers import SpecifierSet
from trove_classifiers import classifiers as known_classifiers

ROOT = Path(__file__).parent.parent
PACKAGES = ("crawler/", "frontier/", "politeness/")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""The versions that .github/workflows/test.yml tests."""


def tracked() -> set[str]:
    """The files of the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).exists()}


def build(folder: Path) -> tuple[Path, Path]:
    """Build (sdist, wheel) in `folder` with the installed hatchling."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def contents(archive: Path) -> dict[str, bytes]:
    """Path -> content of each file in a wheel or, without the top folder, in an sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            return {name: opened.read(name) for name in opened.namelist()}
    with tarfile.open(archive) as tar:
        found = {one.name: tar.extractfile(one) for one in tar.getmembers() if one.isfile()}
        return {name.partition("/")[2]: file.read() for name, file in found.items() if file is not None}


def compared(found: set[str], wanted: set[str]) -> list[str]:
    return [f"missing: {name}" for name in sorted(wanted - found)] + [
        f"not in the repository: {name}" for name in sorted(found - wanted)
    ]


def sdist_faults(files: dict[str, bytes], wanted: set[str]) -> list[str]:
    """The sdist has every file of the repository, and no other."""
    return compared(files.keys() - {"PKG-INFO"}, wanted) + metadata_faults(files.get("PKG-INFO", b""))


def wheel_faults(files: dict[str, bytes], wanted: set[str]) -> list[str]:
    """The wheel has every file of the three packages, and no other, besides its metadata."""
    info = {
        name.partition("/")[2]: data for name, data in files.items() if name.partition("/")[0].endswith(".dist-info")
    }
    found = {name for name in files if not name.partition("/")[0].endswith(".dist-info")}
    faults = compared(found, {name for name in wanted if name.startswith(PACKAGES)})
    faults += [f"missing: {name}" for name in ("licenses/LICENSE", "RECORD") if name not in info]
    if b"crawler = crawler.__main__:main" not in info.get("entry_points.txt", b""):
        faults.append("no command `crawler`")
    return faults + metadata_faults(info.get("METADATA", b""))


def metadata_faults(data: bytes) -> list[str]:
    """The package index accepts the metadata: it validates with the same library. And the Pythons are those tested."""
    try:
        found = Metadata.from_email(data, validate=True)
    except ExceptionGroup as group:
        return [f"metadata: {one}" for one in group.exceptions]
    faults = [f"unknown classifier: {one}" for one in found.classifiers or () if one not in known_classifiers]
    named = {one for one in PYTHONS if f"Programming Language :: Python :: {one}" in (found.classifiers or ())}
    allowed = {one for one in PYTHONS if (found.requires_python or SpecifierSet("<0")).contains(one)}
    if not named == allowed == set(PYTHONS):
        faults.append(f"Pythons: classifiers {sorted(named)}, requires-python {found.requires_python}")
    if found.description_content_type != "text/markdown" or not (found.description or "").startswith("# "):
        faults.append("the description is not the README")
    if found.license_expression is None or not found.summary:
        faults.append("no license or no summary")
    return faults


def version(wheel: Path) -> str:
    """The version in the metadata of `wheel`."""
    files = contents(wheel)
    (name,) = (name for name in files if name.endswith(".dist-info/METADATA"))
    return str(message_from_bytes(files[name])["Version"])


def try_out(wheel: Path) -> None:
    """Install `wheel` as users do, into an environment with nothing else, and run the demo in an empty folder.

    Ends the program if a step fails."""
    with tempfile.TemporaryDirectory(prefix="peercrawl-dist-") as scratch:
        folder = Path(scratch)
        venv.create(folder / "venv", with_pip=True)
        bin_ = folder / "venv" / "bin"
        (folder / "empty").mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CRAWLER_"))}
        steps: list[list[str | Path]] = [
            [bin_ / "pip", "install", "--quiet", "--disable-pip-version-check", wheel],
            [bin_ / "pip", "--disable-pip-version-check", "check"],
            [bin_ / "crawler", "--version"],
            [bin_ / "crawler", "demo"],
        ]
        for words in steps:
            done = subprocess.run(words, cwd=folder / "empty", env=environment, check=False)
            if done.returncode:
                raise SystemExit(f"failed in an empty environment: {' '.join(map(str, words))}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the files; it is emptied first")
    parser.add_argument("--tag", default="", help="the tag that is released")
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    sdist, wheel = build(args.out)
    wanted = tracked()
    faults = [f"{sdist.name}: {one}" for one in sdist_faults(contents(sdist), wanted)]
    faults += [f"{wheel.name}: {one}" for one in wheel_faults(contents(wheel), wanted)]
    if args.tag and args.tag != f"v{version(wheel)}":
        faults.append(f"the tag is {args.tag}, and the version {version(wheel)}")
    print("\n".join(faults) or f"{sdist.name} and {wheel.name} are complete")
    if faults:
        return 1
    try_out(wheel.resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
