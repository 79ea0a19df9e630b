"""Random admission policies, each for a namespace of its own."""

import random
from dataclasses import dataclass

from servers import Request

GROUP = "/apis/admissionregistration.k8s.io/v1"
LABEL = "differential"

EXPRESSIONS = [
    "object.metadata.name.size() < 6",
    "object.spec.replicas <= 3",
    "!has(object.spec) || !has(object.spec.replicas) || object.spec.replicas <= 1",
    "!has(object.metadata.labels) || object.metadata.labels.all(k, k.startsWith('a'))",
    "request.operation == 'UPDATE'",
    "request.userInfo.username == 'admin' && request.dryRun",
    "request.resource.resource != 'configmaps'",
    "variables.name == 'x1'",
    "variables.broken",
    "has(params.data) && params.data['limit'] == '3'",
    "authorizer.group('').resource('pods').namespace('default').check('create').allowed()",
    "authorizer.requestResource.check('delete').allowed() && !authorizer.path('/none').check('get').allowed()",
    "oldObject != null",
    "namespaceObject.metadata.name.startsWith('other')",
    "object.data.size() > 1",
    "has(object.spec) && has(object.spec.containers) && object.spec.containers.all(c, c.image.contains(':'))",
    "has(object.spec) && has(object.spec.ports) && object.spec.ports.exists(p, p.port > 1024)",
    "object.spec.template.spec.containers.exists_one(c, c.name == 'c')",
    "has(object.metadata.annotations) ? object.metadata.annotations.exists(k, k == 'a') : 1 / 0 == 1",
    "string(object.spec.replicas) == '1'",
    "object.metadata.?labels['a'].orValue('') == ''",
]
MESSAGES = [
    {},
    {"message": "refused by a test"},
    {"messageExpression": "'object ' + object.metadata.name + ' is wrong'"},
    {"messageExpression": "'replicas: ' + string(object.spec.replicas)", "message": "the other message"},
    {"messageExpression": "''"},
    {"messageExpression": "'two\\nlines'"},
    {"messageExpression": "variables.name + string(params.data.size())"},
]
REASONS = [{}, {}, {"reason": "Forbidden"}, {"reason": "Invalid"}, {"reason": "RequestEntityTooLarge"}]
MUTATIONS = [
    {"patchType": "ApplyConfiguration", "applyConfiguration": {
        "expression": "Object{metadata: Object.metadata{labels: {'added': 'yes'}}}"}},
    {"patchType": "ApplyConfiguration", "applyConfiguration": {
        "expression": "Object{metadata: Object.metadata{annotations: {'name': object.metadata.name + variables.name}}}"}},
    {"patchType": "JSONPatch", "jsonPatch": {
        "expression": "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]"}},
    {"patchType": "JSONPatch", "jsonPatch": {
        "expression": "[JSONPatch{op: 'replace', path: '/metadata/labels/a', value: 'c'}]"}},
    {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/spec/none'}]"}},
]  # fmt: skip


@dataclass
class Policies:
    """Policies that are active, and the namespaces that they are for."""

    setup: list[Request]
    namespaces: list[str]


def policies(seed: int, count: int) -> Policies:
    """Random policies; after the setup all of them are active."""
    setup = []
    namespaces = []
    for index in range(count):
        chance = random.Random(f"policy/{seed}/{index}")
        name = f"differential-s{seed}-p{index}"
        namespaces.append(name)
        setup += namespace(name)
        # Not in the namespace that the policy governs, so that it can be created again.
        params = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"limit": "3"}}
        setup.append(Request("POST", "/api/v1/namespaces/default/configmaps", params))
        if chance.random() < 0.7:
            setup += bound("ValidatingAdmissionPolicy", name, *validating(chance, name))
        else:
            setup += bound("MutatingAdmissionPolicy", name, *mutating(chance, name))
    # Policies become active in their order, so that the last ones show that all are.
    last = f"differential-s{seed}-last"
    setup += namespace(last)
    setup += bound("ValidatingAdmissionPolicy", last, *refusing(last))
    setup += bound("MutatingAdmissionPolicy", last, *marking(last))
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}}
    setup.append(Request("POST", f"/api/v1/namespaces/{last}/configmaps?dryRun=All", probe, until=422))
    return Policies(setup, namespaces)


def namespace(name: str) -> list[Request]:
    """A namespace with a default account."""
    metadata = {"name": name, "labels": {LABEL: name}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    return [
        Request("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}),
        Request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account),
    ]


def bound(kind: str, name: str, policy: dict, binding: dict) -> list[Request]:
    """A policy and its binding."""
    plural = kind.lower().removesuffix("y") + "ies"
    header = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    return [
        Request("POST", f"{GROUP}/{plural}", {**header, "kind": kind, "spec": policy}),
        Request(
            "POST",
            f"{GROUP}/{kind.lower()}bindings",
            {**header, "kind": f"{kind}Binding", "spec": {"policyName": name, **binding}},
        ),
    ]


def constraints(name: str) -> dict:
    """What matches in the policy's namespace."""
    rule = {
        "apiGroups": ["", "apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["configmaps", "services", "pods", "deployments", "secrets"],
    }
    return {"namespaceSelector": {"matchLabels": {LABEL: name}}, "resourceRules": [rule]}


def common(chance: random.Random, name: str) -> tuple[dict, dict]:
    """The parts that policies of both kinds have, and those of their bindings."""
    policy: dict = {
        "failurePolicy": chance.choice(["Fail", "Fail", "Ignore"]),
        "matchConstraints": constraints(name),
        "variables": [
            {"name": "name", "expression": "object.metadata.name"},
            {"name": "broken", "expression": "object.spec.missing == 'x'"},
        ],
    }
    if chance.random() < 0.4:
        condition = chance.choice(["has(object.metadata.labels)", "request.name != 'x1'", "object.spec.missing == 1", "true"])
        policy["matchConditions"] = [{"name": "condition", "expression": condition}]
    binding: dict = {}
    if chance.random() < 0.6:
        policy["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
        binding["paramRef"] = {
            "name": chance.choice([name, name, name, "missing"]),
            "namespace": "default",
            "parameterNotFoundAction": chance.choice(["Deny", "Allow"]),
        }
    return policy, binding


def validating(chance: random.Random, name: str) -> tuple[dict, dict]:
    """A policy that refuses, and its binding."""
    policy, binding = common(chance, name)
    chosen = chance.sample(EXPRESSIONS, chance.choice([1, 2, 3]))
    policy["validations"] = [
        {"expression": expression, **chance.choice(MESSAGES), **chance.choice(REASONS)}
        for expression in chosen
        if "params" not in expression or "paramKind" in policy
    ] or [{"expression": "false"}]
    for validation in policy["validations"]:
        if "params" in validation.get("messageExpression", "") and "paramKind" not in policy:
            del validation["messageExpression"]
    binding["validationActions"] = chance.choice([["Deny"], ["Deny"], ["Warn"], ["Deny", "Audit"], ["Warn", "Audit"]])
    return policy, binding


def mutating(chance: random.Random, name: str) -> tuple[dict, dict]:
    """A policy that changes objects, and its binding."""
    policy, binding = common(chance, name)
    policy["mutations"] = chance.sample(MUTATIONS, chance.choice([1, 1, 2]))
    policy["reinvocationPolicy"] = chance.choice(["Never", "IfNeeded"])
    return policy, binding


def refusing(name: str) -> tuple[dict, dict]:
    """The policy that refuses what the policy of `marking` marked."""
    expression = "!has(object.metadata.labels) || !('marked' in object.metadata.labels)"
    policy = {"matchConstraints": constraints(name), "validations": [{"expression": expression}]}
    return policy, {"validationActions": ["Deny"]}


def marking(name: str) -> tuple[dict, dict]:
    """A policy that adds a label."""
    expression = "Object{metadata: Object.metadata{labels: {'marked': 'yes'}}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    return {"matchConstraints": constraints(name), "mutations": [mutation], "reinvocationPolicy": "Never"}, {}
