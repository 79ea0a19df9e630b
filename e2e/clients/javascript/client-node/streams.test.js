// @kubernetes/client-node: commands, logs, copies and forwarded ports of simulated pods.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import { buffer, text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import * as k8s from '@kubernetes/client-node';

const DEADLINE = 30_000;
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);

async function until(what, condition) {
  const deadline = Date.now() + DEADLINE;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, what);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function within(what, promise) {
  const timeout = new AbortController();
  const late = new Promise((_, reject) => {
    const timer = setTimeout(() => reject(new Error(`${what} takes too long`)), DEADLINE);
    timeout.signal.addEventListener('abort', () => clearTimeout(timer));
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    timeout.abort();
  }
}

// Creates the pod web in a namespace of its own, and returns the latter once the pod is ready.
async function runPod(annotations, container = {}, spec = {}) {
  const { metadata } = await core.createNamespace({ body: { metadata: { generateName: 'suite-' } } });
  const namespace = metadata.name;
  const named = Object.entries(annotations).map(([name, value]) => [`sim.coracle.dev/${name}`, value]);
  await core.createNamespacedPod({
    namespace,
    body: {
      metadata: { name: 'web', annotations: Object.fromEntries(named) },
      spec: { containers: [{ name: 'web', image: 'web:1', ...container }], ...spec },
    },
  });
  await until('ready', async () => {
    const { status } = await core.readNamespacedPod({ namespace, name: 'web' });
    return status.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True');
  });
  return namespace;
}

// Executes a command, and returns its output and its status.
async function execute(namespace, command, { stdin = null, tty = false } = {}) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const [out, errors] = [buffer(stdout), text(stderr)];
  const status = new Promise((resolve, reject) => {
    new k8s.Exec(config).exec(namespace, 'web', 'web', command, stdout, stderr, stdin, tty, resolve).catch(reject);
  });
  const ended = await within('the command', status);
  return { stdout: await within('the output', out), stderr: await within('the output of errors', errors), status: ended };
}

async function listen(server) {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server.address().port;
}

describe('exec', () => {
  const binary = Buffer.concat(Array(400).fill(Buffer.from(Uint8Array.from({ length: 256 }, (_, byte) => byte))));
  let namespace;

  before(async () => {
    const answers = {
      'ls *': { stdout: 'bin\netc\n' },
      'ls /none': { stdout: 'before\n', stderr: 'ls: /none: no such file\n', exitCode: 2 },
      'cat /data': { stdoutBase64: binary.toString('base64') },
      'wc -c': { stdout: '7\n', after: '500ms' },
    };
    namespace = await runPod({ exec: JSON.stringify(answers) });
  });

  test('a command answers as the pod says', async () => {
    const { stdout, stderr, status } = await execute(namespace, ['ls', '/']);
    assert.deepEqual([stdout.toString(), stderr, status.status], ['bin\netc\n', '', 'Success']);
  });

  test('the status has the exit code', async () => {
    const { stdout, stderr, status } = await execute(namespace, ['ls', '/none']);
    assert.deepEqual([stdout.toString(), stderr], ['before\n', 'ls: /none: no such file\n']);
    assert.deepEqual([status.status, status.reason], ['Failure', 'NonZeroExitCode']);
    assert.deepEqual(status.details.causes, [{ reason: 'ExitCode', message: '2' }]);
    assert.match(status.message, /^command terminated with non-zero exit code: .*exit code 2/);
  });

  test('a command that says what it does is followed', async () => {
    const { stdout, status } = await execute(namespace, ['sh', '-c', 'echo a; sleep 1; exit 3']);
    assert.equal(stdout.toString(), 'a\n');
    assert.equal(status.details.causes[0].message, '3');
  });

  test('output is bytes', async () => {
    const { stdout } = await execute(namespace, ['cat', '/data']);
    assert.ok(stdout.equals(binary));
  });

  test('input is taken to its end', async () => {
    const stdin = new PassThrough();
    stdin.end('a line\n');
    const { stdout, status } = await execute(namespace, ['wc', '-c'], { stdin });
    assert.deepEqual([stdout.toString(), status.status], ['7\n', 'Success']);
  });

  test('a terminal has one output, and interrupts', async () => {
    const { stdout, stderr } = await execute(namespace, ['ls', '/none'], { tty: true });
    assert.deepEqual([stdout.toString(), stderr], ['before\r\nls: /none: no such file\r\n', '']);
    const stdin = new PassThrough();
    const sleeping = execute(namespace, ['sleep', '3600'], { stdin, tty: true });
    stdin.write('\x03');
    const { status } = await sleeping;
    assert.equal(status.details.causes[0].message, '130');
  });

  test('a command that is not simulated is refused', async () => {
    const { stderr, status } = await execute(namespace, ['nginx', '-t']);
    assert.match(stderr, /^exec of "nginx -t" is not simulated/);
    assert.equal(status.details.causes[0].message, '127');
  });
});

test('an attached client sees what is written until the container ends', async () => {
  const command = ['sh', '-c', 'sleep 2; echo one; sleep 1; echo two'];
  const namespace = await runPod({}, { command }, { restartPolicy: 'Never' });
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const [out, errors] = [text(stdout), text(stderr)];
  const socket = await new k8s.Attach(config).attach(namespace, 'web', 'web', stdout, stderr, null, false);
  await within('the end', once(socket, 'close'));
  assert.deepEqual([await within('the output', out), await within('the errors', errors)], ['one\ntwo\n', '']);
});

test('a log is followed to its end', async () => {
  const command = ['sh', '-c', 'echo one; sleep 1; echo two'];
  const namespace = await runPod({}, { command }, { restartPolicy: 'Never' });
  const output = new PassThrough();
  const log = text(output);
  await new k8s.Log(config).log(namespace, 'web', 'web', output, { follow: true });
  assert.equal(await within('the log', log), 'one\ntwo\n');
});

describe('files', () => {
  let directory;
  before(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'suite-'));
  });
  after(() => rm(directory, { recursive: true }));

  test('are copied from a pod and to one', async () => {
    const [from, to] = [path.join(directory, 'from'), path.join(directory, 'to')];
    await mkdir(from);
    const content = randomBytes(50_000);
    await writeFile(path.join(from, 'data'), content);
    const archive = execFileSync('tar', ['cf', '-', '-C', from, '.']);
    const answers = {
      // The client extracts what it does not decompress.
      'tar zcf - -C / srv': { stdoutBase64: archive.toString('base64') },
      'tar xf - -C /srv': { after: '500ms' },
    };
    const namespace = await runPod({ exec: JSON.stringify(answers) });
    const cp = new k8s.Cp(config);
    await cp.cpFromPod(namespace, 'web', 'web', 'srv', to, '/');
    const copy = path.join(to, 'data');
    await until('the copy', async () => existsSync(copy) && content.equals(await readFile(copy)));
    await cp.cpToPod(namespace, 'web', 'web', from, '/srv');
  });
});

describe('port-forward', () => {
  const site = http.createServer((request, response) => response.end(`${request.method} ${request.url}`));
  const echo = net.createServer((socket) => socket.pipe(socket));
  let namespace;
  const unused = net.createServer();

  before(async () => {
    const [web, loop, none] = [await listen(site), await listen(echo), await listen(unused)];
    unused.close();
    namespace = await runPod({ forward: `80=127.0.0.1:${web}, 7=localhost:${loop}, 81=127.0.0.1:${none}` });
  });
  after(() => {
    site.close();
    site.closeAllConnections();
    echo.close();
  });

  // Listens on a local port as the client's example does.
  async function forwarded(port, use) {
    const forward = new k8s.PortForward(config);
    const sockets = [];
    const server = net.createServer(async (socket) => {
      sockets.push(socket, await forward.portForward(namespace, 'web', [port], socket, null, socket));
    });
    const local = await listen(server);
    try {
      await use(local);
    } finally {
      server.close();
      sockets.forEach((socket) => (socket.destroy ?? socket.terminate).call(socket));
    }
  }

  test('a port leads to a local process', () =>
    forwarded(80, async (local) => {
      const answers = await within('the answers', Promise.all([1, 2, 3].map(async (number) => {
        const response = await fetch(`http://127.0.0.1:${local}/${number}`);
        return response.text();
      })));
      assert.deepEqual(answers, ['GET /1', 'GET /2', 'GET /3']);
    }));

  test('much data arrives both ways', () =>
    forwarded(7, async (local) => {
      const sent = randomBytes(5 << 20);
      const socket = net.connect(local, '127.0.0.1');
      socket.write(sent);
      const received = createHash('sha256');
      let size = 0;
      await within('the echo', (async () => {
        for await (const data of socket) {
          received.update(data);
          size += data.length;
          if (size >= sent.length) return;
        }
      })());
      assert.equal(received.digest('hex'), createHash('sha256').update(sent).digest('hex'));
    }));

  for (const port of [81, 82]) {
    test(`port ${port}, which leads nowhere, has an error`, async () => {
      const [output, errors, input] = [new PassThrough(), new PassThrough(), new PassThrough()];
      let error = '';
      errors.on('data', (data) => (error += data));
      const socket = await new k8s.PortForward(config).portForward(namespace, 'web', [port], output, errors, input);
      await until('the error', () => error !== '');
      assert.match(error, new RegExp(`^error forwarding port ${port} to pod web, uid `));
      socket.close();
    });
  }

  test('the end of a process is the end of its connection', async () => {
    const greeting = net.createServer((socket) => socket.end('220 ready\r\n'));
    const other = await runPod({ forward: `25=127.0.0.1:${await listen(greeting)}` });
    const [output, input] = [new PassThrough(), new PassThrough()];
    const socket = await new k8s.PortForward(config).portForward(other, 'web', [25], output, null, input);
    try {
      await within('the end', once(socket, 'close'));
      assert.equal(output.read().toString(), '220 ready\r\n');
    } finally {
      socket.terminate();
      greeting.close();
    }
  });

  test('ports of a pod without processes are refused', async () => {
    const other = await runPod({});
    const [output, errors, input] = [new PassThrough(), new PassThrough(), new PassThrough()];
    const socket = await new k8s.PortForward(config).portForward(other, 'web', [80], output, errors, input);
    await within('the end', once(socket, 'close'));
    assert.match(errors.read().toString(), /sim\.coracle\.dev\/forward: 80=/);
  });
});
