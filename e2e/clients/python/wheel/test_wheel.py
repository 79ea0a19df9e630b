"""Coracle as it is installed by pip: in a fresh environment, whose `coracle` has run this test."""

import os
import shutil
import subprocess
import sys


def test_the_program_comes_with_the_wheel():
    program = shutil.which("coracle")
    assert os.path.dirname(program) == os.path.dirname(sys.executable)
    version = subprocess.run([program, "version"], check=True, capture_output=True, text=True).stdout
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "list", "--format=freeze"], check=True, capture_output=True, text=True
    ).stdout
    assert version.split()[:2] == ["coracle", dict(line.split("==") for line in listed.split())["coracle-k8s"]]


def test_the_control_plane_that_runs_the_tests_is_in_kubeconfig():
    with open(os.environ["KUBECONFIG"]) as file:
        assert "server: https://127.0.0.1:" in file.read()
