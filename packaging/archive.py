"""The archive: the binary, its licence and the README in one directory."""

from pathlib import Path

from binary import Binary
from release import ROOT, Entry, Release, compress, tar


def build(release: Release, binary: Binary, out: Path) -> list[Path]:
    name = f"coracle-{release.version}-{release.target.triple}"
    entries = [Entry(name, mode=0o755), Entry(f"{name}/coracle", binary.content, 0o755)]
    entries += [Entry(f"{name}/{file}", (ROOT / file).read_bytes()) for file in ("LICENSE", "README.md")]
    file = out / f"{name}.tar.gz"
    file.write_bytes(compress(tar(entries, release.time)))
    return [file]
