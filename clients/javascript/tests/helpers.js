// Helpers of the tests.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

export const INDEX = new URL('../index.js', import.meta.url).href;
export const POD = new URL('pod.js', import.meta.url).href;

export async function until(what, condition) {
  const deadline = Date.now() + 20_000;
  while (!condition()) {
    assert.ok(Date.now() < deadline, what);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export async function temporaryDirectory(t) {
  const directory = await mkdtemp(join(tmpdir(), 'coracle-testing-'));
  t.after(() => rm(directory, { recursive: true }));
  return directory;
}

// Runs a script that prints the path of a file, and ends; the file is removed then.
export async function assertFileEndsWithProcess(script) {
  const arguments_ = ['--input-type=module', '--eval', script];
  const { stdout } = await promisify(execFile)(process.execPath, arguments_, { timeout: 20_000 });
  const file = stdout.trim();
  assert.notEqual(file, '');
  await until('the kubeconfig is removed', () => !existsSync(file));
}

// Runs two tests with pods that are not ready, of which one fails: its report alone has the problems of its control plane.
//
// `expression` makes the control plane of the test `t`, with what is imported.
export async function assertFailedTestHasProblems(t, imported, expression) {
  const file = join(await temporaryDirectory(t), 'failing.test.mjs');
  await writeFile(
    file,
    `import { test } from 'node:test';
    import { ${imported} } from ${JSON.stringify(INDEX)};
    import { createPod } from ${JSON.stringify(POD)};
    for (const name of ['passes', 'fails']) {
      test(name, async (t) => {
        const controlPlane = await ${expression};
        await createPod(controlPlane.kubeconfig, 'pod-that-' + name);
        if (name === 'fails') {
          throw new Error('as it should');
        }
      });
    }`,
  );
  // A runner of its own, not a child of this one.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const run = promisify(execFile)(process.execPath, ['--test', file], { env, timeout: 30_000 });
  const { stdout, code } = await run.then(() => assert.fail('it passes'), (error) => error);
  assert.equal(code, 1, stdout);
  assert.match(stdout, /coracle problems:\n.*objects that are not ready \(1\):\n.*pod\/default\/pod-that-fails: Pending/);
  assert.doesNotMatch(stdout, /pod-that-passes/);
}
