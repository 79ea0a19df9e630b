// @kubernetes/client-node with the control plane of a test, by coracle-testing.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as k8s from '@kubernetes/client-node';
import { startFor } from 'coracle-testing';

test('a test has a control plane, and the problems of its objects', async (t) => {
  const controlPlane = await startFor(t);
  const config = new k8s.KubeConfig();
  config.loadFromString(controlPlane.kubeconfig);
  const core = config.makeApiClient(k8s.CoreV1Api);
  assert.equal(await controlPlane.problems(), '');

  const held = { metadata: { name: 'held', finalizers: ['example.com/hold'] } };
  await core.createNamespacedConfigMap({ namespace: 'default', body: held });
  await core.deleteNamespacedConfigMap({ namespace: 'default', name: 'held' });
  assert.match(await controlPlane.problems(), / {2}configmap\/default\/held: Terminating: .* finalizers example\.com\/hold\n/);
});
