"""The binary in a package: its build, and what it needs where it runs."""

import os
import platform
import shutil
import struct
import subprocess
from functools import cached_property
from pathlib import Path

from release import ROOT, Target

ELF_MACHINES = {62: "x86_64", 183: "aarch64"}
MACH_O_MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
# The type of the ELF segment with the name of the dynamic loader.
PT_INTERP = 3


def host_target() -> str:
    """The target for this machine: static, if there is such a one."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine())
    return f"{machine}-apple-darwin" if platform.system() == "Darwin" else f"{machine}-unknown-linux-musl"


def cargo_build(target: Target) -> Path:
    """Builds a release for the target; with zig as the linker if it is not this machine's and cargo-zigbuild is installed."""
    environment = dict(os.environ)
    if target.triple.endswith("-linux-gnu"):
        flags = "-C target-feature=+crt-static"
        environment["RUSTFLAGS"] = f"{environment.get('RUSTFLAGS', '')} {flags}".strip()
    if target.triple.startswith("aarch64-unknown-linux"):
        # For kernels with pages of 64 KiB, too: by default the allocator is for those of the machine that builds it.
        environment.setdefault("JEMALLOC_SYS_WITH_LG_PAGE", "16")
    is_foreign = target.machine not in host_target() or ("darwin" in target.triple) != (platform.system() == "Darwin")
    command = "zigbuild" if is_foreign and shutil.which("cargo-zigbuild") else "build"
    # In the checkout, where cargo finds the allocator's settings.
    subprocess.run(
        ["cargo", command, "--release", "--locked", "--bin", "coracle", "--target", target.triple],
        check=True, cwd=ROOT, env=environment,
    )
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / target.triple / "release" / "coracle"


class Binary:
    """An executable file, and what its header says."""

    def __init__(self, path: Path):
        self.content = path.read_bytes()
        magic = self.content[:4]
        if magic == b"\x7fELF" and self.content[4:6] == b"\x02\x01":
            self.system, machines, (machine,) = "linux", ELF_MACHINES, struct.unpack_from("<H", self.content, 18)
        elif magic == b"\xcf\xfa\xed\xfe":
            self.system, machines, (machine,) = "darwin", MACH_O_MACHINES, struct.unpack_from("<I", self.content, 4)
        else:
            raise ValueError(f"{path} is no program of 64 bits for Linux or macOS")
        self.path, self.machine = path, machines.get(machine, f"machine {machine}")

    @cached_property
    def is_static(self) -> bool:
        """Whether a Linux kernel suffices: no segment names a loader."""
        if self.system != "linux":
            return False
        offset, = struct.unpack_from("<Q", self.content, 32)
        size, count = struct.unpack_from("<HH", self.content, 54)
        return all(struct.unpack_from("<I", self.content, offset + i * size)[0] != PT_INTERP for i in range(count))

    def check(self, target: Target, allow_dynamic: bool) -> None:
        """Refuses a binary that is not for the target, or needs libraries that may be missing where it is installed."""
        if self.machine != target.machine or self.system not in target.triple:
            raise ValueError(f"{self.path} is for {self.machine} {self.system}, and not for {target.triple}")
        if self.system == "linux" and not self.is_static and not allow_dynamic:
            raise ValueError(f"{self.path} is linked dynamically: packages carry a static binary (--allow-dynamic for tests)")
