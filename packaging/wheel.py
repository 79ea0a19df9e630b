"""The wheel: the binary as the script `coracle`, which is a plugin of kubectl too, with the metadata in pyproject.toml.

maturin would make one of its own build: a static binary for musl, which pip then refuses where the C library is glibc. This one is
for both.
"""

import base64
import hashlib
import time
import tomllib
import zipfile
from pathlib import Path

from binary import Binary
from release import ROOT, Release

# A plugin of kubectl. A wheel has no links.
PLUGIN = b'#!/bin/sh\nexec "$(dirname "$0")/coracle" "$@"\n'


def build(release: Release, binary: Binary, out: Path) -> list[Path]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    is_portable = binary.is_static or binary.system != "linux"
    tags = release.target.wheel if is_portable else f"linux_{release.target.machine}"
    name = f"{project['name'].replace('-', '_')}-{release.version}"
    files = {
        f"{name}.data/scripts/coracle": binary.content,
        f"{name}.data/scripts/kubectl-coracle": PLUGIN,
        f"{name}.dist-info/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
        f"{name}.dist-info/METADATA": metadata(project, release.version).encode(),
        f"{name}.dist-info/WHEEL": wheel_file(tags).encode(),
    }
    record = f"{name}.dist-info/RECORD"
    files[record] = "".join([*(record_line(file, files[file]) for file in files), f"{record},,\n"]).encode()
    file = out / f"{name}-py3-none-{tags}.whl"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for entry, content in files.items():
            info = zipfile.ZipInfo(entry, time.gmtime(release.time)[:6])
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            info.external_attr = (0o100755 if "/scripts/" in entry else 0o100644) << 16
            archive.writestr(info, content)
    return [file]


def metadata(project: dict, version: str) -> str:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"Keywords: {','.join(project['keywords'])}",
        f"License-Expression: {project['license']}",
        *(f"License-File: {file}" for file in project["license-files"]),
        *(f"Classifier: {classifier}" for classifier in project["classifiers"]),
        f"Requires-Python: {project['requires-python']}",
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (ROOT / project["readme"]).read_text()


def wheel_file(tags: str) -> str:
    lines = ["Wheel-Version: 1.0", "Generator: packaging/build", "Root-Is-Purelib: false"]
    return "\n".join(lines + [f"Tag: py3-none-{tag}" for tag in tags.split(".")]) + "\n"


def record_line(file: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"{file},sha256={digest},{len(content)}\n"
