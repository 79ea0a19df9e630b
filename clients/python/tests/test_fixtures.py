"""The fixtures, without a Kubernetes client."""

import os

import pytest

import pytest_coracle


def test_a_kubeconfig_is_there_while_the_control_plane_runs():
    with pytest_coracle.start(["--nodes=0"]) as control_plane:
        with open(control_plane.kubeconfig) as file:
            assert "server: https://127.0.0.1:" in file.read()
    assert not os.path.exists(control_plane.kubeconfig)


def test_flags_may_stand_alone():
    with pytest_coracle.start("--nodes=0", "--default-storage-class=none") as control_plane:
        assert os.path.exists(control_plane.kubeconfig)


def test_tests_share_the_one_of_the_session_only(coracle, coracle_session):
    assert coracle.kubeconfig != coracle_session.kubeconfig


@pytest.mark.parametrize("flag", ["--no-such-flag", "--listen=192.0.2.1:1"])
def test_a_failed_start_reports_the_programs_error(flag):
    with pytest.raises(pytest_coracle.StartError, match="coracle: "):
        with pytest_coracle.start([flag]):
            pass


def test_without_a_program_the_error_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.delenv("CORACLE_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest_coracle.StartError, match="CORACLE_BIN"):
        with pytest_coracle.start():
            pass


def test_a_wrong_program_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CORACLE_BIN", str(tmp_path / "missing"))
    with pytest.raises(pytest_coracle.StartError, match="CORACLE_BIN is .*missing"):
        with pytest_coracle.start():
            pass
