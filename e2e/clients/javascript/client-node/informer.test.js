// @kubernetes/client-node: informers, watches, typed and generic objects, with the control plane in KUBECONFIG.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import * as k8s from '@kubernetes/client-node';

const DEADLINE = 30_000;
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);

const code = (wanted) => (error) => error.code === wanted;

async function until(what, condition) {
  const deadline = Date.now() + DEADLINE;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, what);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function createNamespace() {
  const created = await core.createNamespace({ body: { metadata: { generateName: 'suite-' } } });
  return created.metadata.name;
}

const configMap = (name, data = {}) => ({ metadata: { name, labels: { suite: 'informer' } }, data });

describe('informer', () => {
  let namespace;
  let informer;
  const events = [];

  before(async () => {
    namespace = await createNamespace();
    await core.createNamespacedConfigMap({ namespace, body: configMap('before', { n: '0' }) });
    informer = k8s.makeInformer(
      config,
      `/api/v1/namespaces/${namespace}/configmaps`,
      () => core.listNamespacedConfigMap({ namespace, labelSelector: 'suite=informer' }),
      'suite=informer',
    );
    for (const verb of [k8s.ADD, k8s.UPDATE, k8s.DELETE]) {
      informer.on(verb, (object) => events.push(`${verb} ${object.metadata.name} ${object.data?.n}`));
    }
    await informer.start();
  });

  after(() => informer.stop());

  test('it sees each change once, and caches the last', async () => {
    await core.createNamespacedConfigMap({ namespace, body: configMap('settings', { n: '1' }) });
    const read = await core.readNamespacedConfigMap({ namespace, name: 'settings' });
    read.data.n = '2';
    await core.replaceNamespacedConfigMap({ namespace, name: 'settings', body: read });
    await until('the update', () => informer.get('settings', namespace)?.data.n === '2');
    assert.deepEqual(informer.list().map((object) => object.metadata.name).sort(), ['before', 'settings']);
    await core.deleteNamespacedConfigMap({ namespace, name: 'settings' });
    await until('the deletion', () => informer.get('settings', namespace) === undefined);
    assert.deepEqual(events, ['add before 0', 'add settings 1', 'update settings 2', 'delete settings 2']);
  });

  test('it goes on after a restart', async () => {
    await informer.stop();
    await core.createNamespacedConfigMap({ namespace, body: configMap('meanwhile', { n: '3' }) });
    await core.deleteNamespacedConfigMap({ namespace, name: 'before' });
    await informer.start();
    await until('the change', () => informer.get('meanwhile', namespace)?.data.n === '3');
    await until('the deletion', () => informer.get('before', namespace) === undefined);
  });
});

test('a watch streams events and bookmarks', async () => {
  const namespace = await createNamespace();
  const { metadata } = await core.listNamespacedConfigMap({ namespace });
  const seen = [];
  const ended = new Promise((resolve, reject) => {
    new k8s.Watch(config)
      .watch(
        `/api/v1/namespaces/${namespace}/configmaps`,
        { resourceVersion: metadata.resourceVersion, fieldSelector: 'metadata.name=settings', timeoutSeconds: 1, allowWatchBookmarks: true },
        (type, object) => seen.push([type, object.kind]),
        (error) => (error ? reject(error) : resolve()),
      )
      .catch(reject);
  });
  await core.createNamespacedConfigMap({ namespace, body: configMap('settings') });
  // The server ends it after a second.
  await ended.catch((error) => assert.equal(error.name, 'AbortError'));
  assert.deepEqual(seen.filter(([type]) => type !== 'BOOKMARK'), [['ADDED', 'ConfigMap']]);
});

test('errors have the code of the server', async () => {
  const namespace = await createNamespace();
  const body = configMap('settings');
  const created = await core.createNamespacedConfigMap({ namespace, body });
  await assert.rejects(core.createNamespacedConfigMap({ namespace, body }), code(409));
  await assert.rejects(core.readNamespacedConfigMap({ namespace, name: 'none' }), code(404));
  await assert.rejects(core.createNamespacedConfigMap({ namespace, body: configMap('Not a name') }), code(422));
  await core.patchNamespacedConfigMap(
    { namespace, name: 'settings', body: { data: { n: '1' } } },
    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch),
  );
  await assert.rejects(core.replaceNamespacedConfigMap({ namespace, name: 'settings', body: created }), code(409));
});

test('objects from YAML are created, applied and deleted', async () => {
  const namespace = await createNamespace();
  const set = k8s.loadYaml(`
    apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: db, namespace: ${namespace}}
    spec:
      replicas: 2
      selector: {matchLabels: {app: db}}
      template:
        metadata: {labels: {app: db}}
        spec: {containers: [{name: db, image: "db:1"}]}
  `);
  await objects.patch(set, undefined, undefined, 'suite', undefined, k8s.PatchStrategy.ServerSideApply);
  await until('ready', async () => {
    const { status } = await apps.readNamespacedStatefulSet({ namespace, name: 'db' });
    return status.readyReplicas === 2;
  });
  set.spec.replicas = 1;
  await assert.rejects(
    objects.patch(set, undefined, undefined, 'other', undefined, k8s.PatchStrategy.ServerSideApply),
    (error) => error.code === 409 && JSON.stringify(error.body).includes('conflict with'),
  );
  const pods = await core.listNamespacedPod({ namespace, labelSelector: 'app=db' });
  assert.deepEqual(pods.items.map((pod) => pod.status.phase), ['Running', 'Running']);
  await objects.delete(set, undefined, undefined, undefined, undefined, 'Foreground');
  await until('deleted', async () => (await core.listNamespacedPod({ namespace })).items.length === 0);
});
