// Forks and templates, without a Kubernetes client.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir, readFile, stat } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { start, startFor, template } from 'coracle-testing';

import { INDEX, assertFailedTestHasProblems, assertFileEndsWithProcess } from './helpers.js';
import { createPod, forkNames, podNames } from './pod.js';

const FLAGS = { flags: ['--nodes=0'] };

test('a fork goes its own way', async (t) => {
  const parent = await startFor(t, FLAGS);
  await createPod(parent.kubeconfig, 'before');
  const fork = await parent.fork();
  assert.equal(await readFile(fork.kubeconfigFile, 'utf8'), fork.kubeconfig);
  assert.equal((await stat(fork.kubeconfigFile)).mode & 0o777, 0o600);
  assert.equal(fork.log, parent.log);
  await createPod(parent.kubeconfig, 'of-the-parent');
  await createPod(fork.kubeconfig, 'of-the-fork');
  await fork.settle();
  assert.deepEqual(await podNames(parent.kubeconfig), ['before', 'of-the-parent']);
  assert.deepEqual(await podNames(fork.kubeconfig), ['before', 'of-the-fork']);
  assert.match(await fork.problems(), /pod\/default\/of-the-fork: Pending/);

  assert.equal((await forkNames(parent.kubeconfig)).length, 1);
  const stopped = fork.stop();
  assert.equal(fork.stop(), stopped, 'a second stop is the first');
  await stopped;
  assert.deepEqual(await forkNames(parent.kubeconfig), []);
  // No file is left, of another name either.
  assert.deepEqual(await readdir(dirname(parent.kubeconfigFile)), [basename(parent.kubeconfigFile)]);
});

test('a fork ends at the end of a block', async (t) => {
  const parent = await startFor(t, FLAGS);
  const fork = await parent.fork();
  await fork[Symbol.asyncDispose]();
  assert.deepEqual(await forkNames(parent.kubeconfig), []);
});

test('a fork of a fork goes on', async (t) => {
  const parent = await startFor(t, FLAGS);
  const first = await parent.fork();
  await createPod(first.kubeconfig, 'of-the-first');
  const second = await first.fork();
  await first.stop();
  assert.deepEqual(await podNames(second.kubeconfig), ['of-the-first']);
  await second.stop();
  assert.deepEqual(await forkNames(parent.kubeconfig), []);
});

test('a fork ends with the control plane that was started', async () => {
  const parent = await start(FLAGS);
  const [before, together] = [await parent.fork(), await parent.fork()];
  await Promise.all([parent.stop(), together.stop()]);
  await before.stop();
  assert.deepEqual([before, together].map((fork) => existsSync(fork.kubeconfigFile)), [false, false]);
  await assert.rejects(parent.fork(), /^Error: coracle: POST \/coracle\/v1alpha1\/forks: .*ECONNREFUSED/);
});

test('a fork has a clock of its own', async (t) => {
  const parent = await startFor(t, { flags: ['--nodes=0', '--clock=manual'] });
  await parent.settle();
  const began = await parent.clock.advance('1h');
  const fork = await parent.fork();
  assert.deepEqual(await fork.clock.now(), began);
  assert.equal((await fork.clock.advance('24h')) - began, 24 * 3600 * 1000);
  assert.deepEqual(await parent.clock.now(), began);
});

test('a fork has options of its own', async (t) => {
  const parent = await startFor(t, { flags: ['--nodes=0'] });
  const webhookServiceURLs = { 'default/hook': 'https://127.0.0.1:9443' };
  const fork = await parent.fork({ clock: 'manual', webhookServiceURLs });
  const began = await fork.clock.now();
  assert.equal((await fork.clock.advance('1h')) - began, 3600 * 1000);
  await assert.rejects(parent.fork({ webhookServiceURLs: { hook: 'https://127.0.0.1:9443' } }), /webhookServiceURLs/);
});

test('a fork that is refused, or has ended, has the error of the server', async (t) => {
  const none = await startFor(t, { flags: ['--nodes=0', '--max-forks=0'] });
  await assert.rejects(none.fork(), /^Error: coracle: POST \/coracle\/v1alpha1\/forks: 429 .*: there are 0 forks.*--max-forks/);
  const parent = await startFor(t, FLAGS);
  const fork = await parent.fork();
  await promisify(execFile)(parent.program, ['fork', '--delete', basename(fork.kubeconfigFile, '.yaml')], {
    env: { ...process.env, KUBECONFIG: parent.kubeconfigFile },
  });
  await assert.rejects(fork.stop(), /^Error: coracle: DELETE \/coracle\/.*: 404 .*: fork ".*" not found/);
  assert.ok(!existsSync(fork.kubeconfigFile));
});

test('each test has a fork of one template', async (t) => {
  const parents = [];
  const setUp = async (controlPlane) => {
    parents.push(controlPlane.kubeconfig);
    await createPod(controlPlane.kubeconfig, 'of-the-template');
  };
  const files = [];
  const names = ['a', 'b', 'c'];
  await Promise.all(
    names.map((name) =>
      t.test(name, async (t) => {
        const fork = await (await template('shared', setUp, FLAGS)).forkFor(t);
        await createPod(fork.kubeconfig, name);
        assert.deepEqual(await podNames(fork.kubeconfig), [name, 'of-the-template']);
        files.push(fork.kubeconfigFile);
      }),
    ),
  );
  assert.deepEqual(files.map(existsSync), [false, false, false], 'they are stopped');
  const fork = await (await template('shared', setUp, FLAGS)).fork();
  assert.deepEqual(await podNames(fork.kubeconfig), ['of-the-template']);
  assert.deepEqual(await forkNames(parents[0]), [basename(fork.kubeconfigFile, '.yaml')]);
  await fork.stop();
  assert.equal(parents.length, 1);
  for (const [name, flags] of [['other', FLAGS.flags], ['shared', ['--nodes=1']]]) {
    await template(name, setUp, { flags });
  }
  assert.equal(parents.length, 3, 'another name or other flags are another template');
});

test('a set-up that fails fails all callers', async () => {
  const started = [];
  const setUp = async (controlPlane) => {
    started.push(controlPlane.kubeconfigFile);
    await createPod(controlPlane.kubeconfig, 'lonely');
    throw new Error('no definitions');
  };
  const want = /^Error: the set-up of the template "failing" failed: no definitions\ncoracle problems:\n[^]*pod\/default\/lonely: Pending/;
  const failing = () => assert.rejects(template('failing', setUp, FLAGS), want);
  await Promise.all([failing(), failing()]);
  await failing();
  assert.deepEqual(started.map(existsSync), [false], 'it is stopped');
});

test('a template and its forks do not keep their process', async () => {
  const script = `import { template } from ${JSON.stringify(INDEX)};
    const { fork } = await template('kept', () => {}, { flags: ['--nodes=0'] });
    console.log((await fork()).kubeconfigFile);`;
  await assertFileEndsWithProcess(script);
});

test('a test that fails has the problems of its fork', async (t) => {
  await assertFailedTestHasProblems(t, 'template', `(await template('shared', () => {}, { flags: ['--nodes=0'] })).forkFor(t)`);
});
