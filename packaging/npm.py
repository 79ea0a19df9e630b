"""The npm packages: `coracle-k8s`, which starts the binary, and one package with a binary for each platform, of which npm installs
that of the machine."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from binary import Binary
from release import DESCRIPTION, LICENCE, ROOT, TARGETS, Release

NAME = "coracle-k8s"
PARTS = Path(__file__).parent / "npm"


def build(release: Release, binary: Binary, out: Path) -> list[Path]:
    return [pack(main_package(release), PARTS, out), pack(platform_package(release, binary), binary.path, out)]


def main_package(release: Release) -> dict:
    platforms = sorted({target.npm for target in TARGETS.values()})
    return manifest(release, NAME) | {
        "bin": {"coracle": "coracle.js"},
        "exports": {".": "./binary.js"},
        "engines": {"node": ">=18"},
        "keywords": ["kubernetes", "testing", "apiserver", "envtest"],
        "optionalDependencies": {f"{NAME}-{platform}": release.version for platform in platforms},
    }


def platform_package(release: Release, binary: Binary) -> dict:
    system, cpu = release.target.npm.split("-")
    package = manifest(release, f"{NAME}-{release.target.npm}") | {"os": [system], "cpu": [cpu]}
    if system == "linux" and not binary.is_static:
        package["libc"] = ["glibc"]
    # For Yarn: a program in a zip file cannot be started.
    return package | {"description": f"{DESCRIPTION}: the binary for {release.target.npm}", "preferUnplugged": True}


def manifest(release: Release, name: str) -> dict:
    return {"name": name, "version": release.version, "description": DESCRIPTION, "license": LICENCE}


def pack(package: dict, content: Path, out: Path) -> Path:
    """Packs a manifest with the files of a directory, or with a binary. npm sets times that are always the same."""
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        if content.is_dir():
            shutil.copytree(content, directory, dirs_exist_ok=True)
        else:
            shutil.copyfile(content, directory / "coracle")
            (directory / "README.md").write_text(f"The binary of `{NAME}` for one platform. Install `{NAME}`.\n")
        shutil.copyfile(ROOT / "LICENSE", directory / "LICENSE")
        (directory / "package.json").write_text(json.dumps(package, indent=2) + "\n")
        for file in directory.iterdir():
            file.chmod(0o755 if file.name in ("coracle", "coracle.js") else 0o644)
        command = ["npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", str(out.resolve())]
        packed = subprocess.run(command, check=True, cwd=directory, stdout=subprocess.PIPE, text=True)
    return out / packed.stdout.split()[-1]
