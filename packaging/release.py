"""The release that is packaged: its version, its time and its target; archives that are equal whoever makes them."""

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DESCRIPTION = "A Kubernetes control plane in one small binary"
LICENCE = "Apache-2.0"


@dataclass(frozen=True)
class Target:
    """A platform, by the names that each packager has for it."""

    triple: str
    machine: str
    npm: str
    oci: str | None
    wheel: str

    def has(self, name: str) -> bool:
        """Whether there is a package of this format for the platform."""
        return name != "image" or self.oci is not None


def _linux(machine: str, libc: str, cpu: str, oci: str) -> Target:
    # A static binary runs on both C libraries. Linux 3.2 suffices for each, and pip knows no older ones.
    tags = f"manylinux2014_{machine}.manylinux_2_17_{machine}.musllinux_1_1_{machine}"
    return Target(f"{machine}-unknown-linux-{libc}", machine, f"linux-{cpu}", oci, tags)


TARGETS = {
    target.triple: target
    for target in [
        _linux("x86_64", "musl", "x64", "amd64"),
        _linux("x86_64", "gnu", "x64", "amd64"),
        _linux("aarch64", "musl", "arm64", "arm64"),
        _linux("aarch64", "gnu", "arm64", "arm64"),
        Target("aarch64-apple-darwin", "aarch64", "darwin-arm64", None, "macosx_11_0_arm64"),
        Target("x86_64-apple-darwin", "x86_64", "darwin-x64", None, "macosx_10_12_x86_64"),
    ]
}


@dataclass(frozen=True)
class Release:
    """A version of the checkout, for a target. `time` is that of the commit, in seconds."""

    version: str
    commit: str
    time: int
    target: Target

    @staticmethod
    def of_checkout(triple: str) -> "Release":
        if triple not in TARGETS:
            raise ValueError(f"no target {triple!r}: one of {', '.join(TARGETS)}")
        manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
        commit = subprocess.run(
            ["git", "-C", str(ROOT), "log", "-1", "--format=%H %ct"], check=True, capture_output=True, text=True
        )
        commit, time = commit.stdout.split()
        time = os.environ.get("SOURCE_DATE_EPOCH", time)
        return Release(manifest["workspace"]["package"]["version"], commit, int(time), TARGETS[triple])


@dataclass(frozen=True)
class Entry:
    """A file in an archive, or a directory if it has no content."""

    name: str
    content: bytes | None = None
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


def tar(entries: list[Entry], time: int) -> bytes:
    """An archive of the entries in the order of their names, which says nothing of the machine that made it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for entry in sorted(entries, key=lambda entry: entry.name):
            info = tarfile.TarInfo(entry.name)
            info.mode, info.mtime, info.uid, info.gid = entry.mode, time, entry.uid, entry.gid
            info.type = tarfile.DIRTYPE if entry.content is None else tarfile.REGTYPE
            info.size = len(entry.content or b"")
            archive.addfile(info, io.BytesIO(entry.content or b""))
    return buffer.getvalue()


def compress(content: bytes) -> bytes:
    """The content, compressed, without a name or a time."""
    return gzip.compress(content, compresslevel=6, mtime=0)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_checksums(directory: Path) -> None:
    """Writes SHA256SUMS of all files in a directory, as sha256sum has it."""
    files = sorted(file for file in directory.iterdir() if file.is_file() and file.name != "SHA256SUMS")
    lines = [f"{sha256(file.read_bytes())}  {file.name}\n" for file in files]
    (directory / "SHA256SUMS").write_text("".join(lines))
