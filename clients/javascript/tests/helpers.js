// Helpers of the tests.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

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
