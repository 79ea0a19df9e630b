"""Schemathesis: requests made from our own OpenAPI documents, right and wrong ones, and what the answers are.

No answer is a server error, and each has the type and the shape that the document says. SCHEMATHESIS_SECONDS is the time for
each document.
"""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import requests
import yaml

SECONDS = os.environ.get("SCHEMATHESIS_SECONDS", "20")

DOCUMENTS = [
    "api/v1",
    "apis/admissionregistration.k8s.io/v1",
    "apis/apiextensions.k8s.io/v1",
    "apis/apps/v1",
    "apis/batch/v1",
    "apis/networking.k8s.io/v1",
    "apis/policy/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/storage.k8s.io/v1",
]

# They last by design.
LASTING_PATHS = {"watch", "log", "proxy", "exec", "attach", "portforward"}
LASTING_PARAMETERS = {"watch", "timeoutSeconds", "sendInitialEvents", "allowWatchBookmarks"}
# Bindings without a target's name: kube-apiserver, too, answers them with 500.
SERVER_ERRORS = "/bindings$"
# kube-apiserver, too, answers with null where Go has no value: eventTime of Events, limits of LimitRanges.
NULLS = {"api/v1"}


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The URL, and the files of the CA, the client's certificate and its key."""
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    directory = tmp_path_factory.mktemp("pki")
    files = []
    for name, data in [
        ("ca", cluster["certificate-authority-data"]),
        ("certificate", user["client-certificate-data"]),
        ("key", user["client-key-data"]),
    ]:
        file = directory / name
        file.write_bytes(base64.b64decode(data))
        files.append(str(file))
    return cluster["server"], *files


def without_what_lasts(document):
    paths = {}
    for path, item in document["paths"].items():
        if LASTING_PATHS & set(path.split("/")):
            continue
        for part in [item, *(value for value in item.values() if isinstance(value, dict))]:
            if "parameters" in part:
                part["parameters"] = [p for p in part["parameters"] if p.get("name") not in LASTING_PARAMETERS]
        paths[path] = item
    return {**document, "paths": paths}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_answers_are_as_documented(name, server, tmp_path):
    url, ca, certificate, key = server
    response = requests.get(f"{url}/openapi/v3/{name}", verify=ca, cert=(certificate, key), timeout=30)
    response.raise_for_status()
    document = tmp_path / "document.json"
    document.write_text(json.dumps(without_what_lasts(response.json())))
    checks = ["not_a_server_error", "content_type_conformance"]
    if name not in NULLS:
        checks.append("response_schema_conformance")
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", str(document), "--url", url]
    command += ["--tls-verify", ca, "--request-cert", certificate, "--request-cert-key", key]
    command += ["--checks", ",".join(checks), "--exclude-path-regex", SERVER_ERRORS]
    command += ["--phases", "coverage,fuzzing", "--warnings", "off", "--continue-on-failure"]
    command += ["--max-time", SECONDS, "--request-timeout", "10"]
    # It leaves a cache where it runs.
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    print("\n".join(line for line in run.stdout.splitlines() if "generated" in line))
