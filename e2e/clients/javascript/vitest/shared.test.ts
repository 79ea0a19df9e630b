// vitest, in TypeScript: a control plane for all tests of a file.
import * as k8s from '@kubernetes/client-node';
import { type ControlPlane, start } from 'coracle-testing';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';

let controlPlane: ControlPlane;
let core: k8s.CoreV1Api;

beforeAll(async () => {
  controlPlane = await start({ flags: ['--nodes=0'] });
  const config = new k8s.KubeConfig();
  config.loadFromString(controlPlane.kubeconfig);
  core = config.makeApiClient(k8s.CoreV1Api);
});
afterEach(async ({ task }) => {
  if (task.result?.state === 'fail') {
    console.error(await controlPlane.problems());
  }
});
afterAll(() => controlPlane.stop());

test('a client works with its kubeconfig', async () => {
  const { status } = await core.readNamespace({ name: 'default' });
  expect(status?.phase).toBe('Active');
  expect(await controlPlane.problems()).toBe('');
});

test('a pod that is not scheduled is a problem', async () => {
  const body = { metadata: { name: 'lonely' }, spec: { containers: [{ name: 'app', image: 'app' }] } };
  await core.createNamespacedPod({ namespace: 'default', body });
  expect(await controlPlane.problems()).toContain('pod/default/lonely: Pending');
});

test('a block has a control plane of its own', async () => {
  let kubeconfig: string;
  {
    await using own = await start({ flags: ['--nodes=0'] });
    kubeconfig = own.kubeconfig;
  }
  expect(kubeconfig).not.toBe(controlPlane.kubeconfig);
});
