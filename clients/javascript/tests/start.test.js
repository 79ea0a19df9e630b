// The package, without a Kubernetes client.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { start, startFor } from 'coracle-testing';

import { INDEX, assertFailedTestHasProblems, assertFileEndsWithProcess, temporaryDirectory, until } from './helpers.js';
import { createPod } from './pod.js';

// Sets variables of the environment for a test.
function setEnvironment(t, variables) {
  for (const [name, value] of Object.entries(variables)) {
    const before = process.env[name];
    process.env[name] = value;
    t.after(() => (before === undefined ? delete process.env[name] : (process.env[name] = before)));
  }
}

test('a kubeconfig is there while the control plane runs', async () => {
  const controlPlane = await start({ flags: ['--nodes=0'] });
  assert.match(controlPlane.kubeconfig, /server: https:\/\/127\.0\.0\.1:/);
  assert.equal(await readFile(controlPlane.kubeconfigFile, 'utf8'), controlPlane.kubeconfig);
  assert.equal(await controlPlane.problems(), '');
  const stopped = controlPlane.stop();
  assert.equal(controlPlane.stop(), stopped, 'a second stop is the first');
  await stopped;
  assert.ok(!existsSync(controlPlane.kubeconfigFile));
});

test('it stops at the end of a block', async () => {
  const controlPlane = await start({ flags: ['--nodes=0'] });
  await controlPlane[Symbol.asyncDispose]();
  assert.ok(!existsSync(controlPlane.kubeconfigFile));
});

test('each test has a control plane of its own', async (t) => {
  const files = [];
  for (const name of ['one', 'two']) {
    await t.test(name, async (t) => {
      files.push((await startFor(t, { flags: ['--nodes=0'] })).kubeconfigFile);
      assert.ok(existsSync(files.at(-1)));
    });
  }
  assert.equal(new Set(files).size, 2);
  assert.deepEqual(files.map(existsSync), [false, false], 'they are stopped');
});

test('a failed start reports the error of the program', async () => {
  for (const flag of ['--no-such-flag', '--listen=192.0.2.1:1']) {
    await assert.rejects(start({ flags: [flag] }), /does not start: exit code \d\ncoracle: /, flag);
  }
});

test('a wrong program is named', async (t) => {
  const missing = join(await temporaryDirectory(t), 'missing');
  setEnvironment(t, { CORACLE_BIN: missing });
  await assert.rejects(start(), { message: `CORACLE_BIN is ${JSON.stringify(missing)}, which is not a program: ENOENT` });
});

test('without a program the error says what to do', async (t) => {
  setEnvironment(t, { CORACLE_BIN: '', PATH: await temporaryDirectory(t) });
  await assert.rejects(start(), /set CORACLE_BIN, or install coracle on the path/);
});

test('a program that fails at its end is reported with its log', async (t) => {
  const program = join(await temporaryDirectory(t), 'program');
  // It logs more than is kept.
  const script = `#!/bin/sh\nyes ${'x'.repeat(99)} | head -n 20000 >&2\necho ${fileURLToPath(INDEX)}\ncat\nexit 3\n`;
  await writeFile(program, script, { mode: 0o755 });
  setEnvironment(t, { CORACLE_BIN: program });
  const controlPlane = await start();
  await assert.rejects(controlPlane.stop(), /^Error: coracle: exit code 3\nxxx/);
  assert.equal(controlPlane.log.length, 1 << 20);
});

test('a control plane ends with a process that is killed', async () => {
  const script = `import { start } from ${JSON.stringify(INDEX)};
    const controlPlane = await start({ flags: ['--nodes=0'] });
    console.log(controlPlane.kubeconfigFile);
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [file] = await Promise.race([
    new Promise((resolve) => createInterface(child.stdout).once('line', (line) => resolve([line]))),
    new Promise((resolve) => child.once('exit', () => resolve([]))),
  ]);
  assert.ok(existsSync(file), file);
  child.kill('SIGKILL');
  await until('the kubeconfig is removed', () => !existsSync(file));
});

test('a control plane that nobody stops does not keep its process', async () => {
  const script = `import { start } from ${JSON.stringify(INDEX)};
    console.log((await start({ flags: ['--nodes=0'] })).kubeconfigFile);`;
  await assertFileEndsWithProcess(script);
});

test('the pods that are not ready are problems', async (t) => {
  // Nothing schedules a pod there.
  const controlPlane = await startFor(t, { flags: ['--nodes=0'] });
  await createPod(controlPlane.kubeconfig, 'lonely');
  assert.match(await controlPlane.problems(), /^objects that are not ready \(1\):\n {2}pod\/default\/lonely: Pending/);
});

test('a test that fails has the problems of its control plane', async (t) => {
  await assertFailedTestHasProblems(t, 'startFor', `startFor(t, { flags: ['--nodes=0'] })`);
});

test('settle waits for clients', async (t) => {
  const controlPlane = await startFor(t, { flags: ['--nodes=0'] });
  await controlPlane.settle({ quietFor: 1, userAgents: ['kube-controller-manager/*'] });
  await assert.rejects(controlPlane.settle({ timeout: 200, userAgents: ['no-such-operator/*'] }), /no-such-operator/);
});

test('the clock is moved on', async (t) => {
  const controlPlane = await startFor(t, { flags: ['--clock=manual'] });
  await controlPlane.settle();
  const { clock } = controlPlane;
  const began = await clock.now();
  const later = await clock.advance('24h');
  assert.equal(later - began, 24 * 3600 * 1000);
  assert.ok((await clock.next(2)) > later);
  await assert.rejects(clock.set(began), /does not go back/);
  await clock.resume();
  await assert.rejects(clock.advance('1s'), /--clock=manual/);
});
