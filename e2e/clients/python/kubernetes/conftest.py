"""The control plane that the tests share, each in a namespace of its own."""

import pytest
from kubernetes import client, config


@pytest.fixture(scope="session")
def api(coracle_session):
    return config.new_client_from_config(coracle_session.kubeconfig)


@pytest.fixture
def namespace(api):
    body = client.V1Namespace(metadata=client.V1ObjectMeta(generate_name="suite-"))
    return client.CoreV1Api(api).create_namespace(body).metadata.name
