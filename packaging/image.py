"""The container image, from nothing: the binary, a user, and directories that are empty. An OCI archive, which Docker loads too."""

import json
import time
from pathlib import Path

from binary import Binary
from release import DESCRIPTION, LICENCE, Entry, Release, compress, sha256, tar

USER = 65532
PORT = "6443/tcp"
SECOND = 1_000_000_000

# What a container needs otherwise than a process of a user does. `coracle ready` and `coracle backup` find the server by KUBECONFIG.
ENVIRONMENT = {
    "CORACLE_DATA_DIR": "/data",
    "CORACLE_LISTEN": "0.0.0.0:6443",
    "KUBECONFIG": "/data/kubeconfig",
}

BASE = [
    Entry("data", mode=0o770, uid=USER),
    Entry("etc", mode=0o755),
    Entry("etc/group", f"root:x:0:\ncoracle:x:{USER}:\n".encode()),
    Entry("etc/passwd", f"root:x:0:0::/:/coracle\ncoracle:x:{USER}:{USER}::/data:/coracle\n".encode()),
    Entry("tmp", mode=0o1777),
]


def build(release: Release, binary: Binary, out: Path) -> list[Path]:
    layers = [tar(BASE, release.time), tar([Entry("coracle", binary.content, 0o755)], release.time)]
    compressed = [compress(layer) for layer in layers]
    config = encode(image_config(release, layers))
    manifest = encode({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", layer) for layer in compressed],
    })
    reference = {
        "io.containerd.image.name": f"coracle:{release.version}",
        "org.opencontainers.image.ref.name": release.version,
    }
    described = descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
    platform = {"architecture": release.target.oci, "os": "linux"}
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described | {"platform": platform, "annotations": reference}],
    }
    # `docker load` before Docker 25 reads this instead of the index.
    legacy = [{
        "Config": blob(config),
        "RepoTags": [f"coracle:{release.version}"],
        "Layers": [blob(layer) for layer in compressed],
    }]
    files = [Entry(blob(content), content) for content in [config, manifest, *compressed]]
    files += [
        Entry("index.json", encode(index)),
        Entry("manifest.json", encode(legacy)),
        Entry("oci-layout", encode({"imageLayoutVersion": "1.0.0"})),
    ]
    directories = [Entry("blobs", mode=0o755), Entry("blobs/sha256", mode=0o755)]
    file = out / f"coracle-{release.version}-linux-{release.target.oci}.oci.tar"
    file.write_bytes(tar(directories + files, release.time))
    return [file]


def image_config(release: Release, layers: list[bytes]) -> dict:
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.time))
    health = {
        "Test": ["CMD", "/coracle", "ready"],
        "Interval": 2 * SECOND,
        "Timeout": 6 * SECOND,
        "StartPeriod": 30 * SECOND,
        # From Docker 25 on; before, the first check is after the first interval.
        "StartInterval": SECOND // 5,
        "Retries": 3,
    }
    labels = {
        "org.opencontainers.image.title": "coracle",
        "org.opencontainers.image.description": DESCRIPTION,
        "org.opencontainers.image.licenses": LICENCE,
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": release.commit,
        "org.opencontainers.image.created": created,
    }
    return {
        "created": created,
        "architecture": release.target.oci,
        "os": "linux",
        "config": {
            "User": str(USER),
            "ExposedPorts": {PORT: {}},
            "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
            "Entrypoint": ["/coracle"],
            "Cmd": ["serve"],
            "WorkingDir": "/data",
            "Labels": labels,
            # Docker's, which the OCI format does not have and others ignore.
            "Healthcheck": health,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer)}" for layer in layers]},
        "history": [
            {"created": created, "created_by": "packaging/build image: user and directories"},
            {"created": created, "created_by": "packaging/build image: /coracle"},
        ],
    }


def encode(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def blob(content: bytes) -> str:
    return f"blobs/sha256/{sha256(content)}"


def descriptor(media_type: str, content: bytes) -> dict:
    return {"mediaType": media_type, "digest": f"sha256:{sha256(content)}", "size": len(content)}
