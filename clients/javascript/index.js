// Starts a Coracle control plane for tests, and stops it with them. The program is $CORACLE_BIN, or coracle on the path.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as after } from 'node:timers/promises';
import { promisify } from 'node:util';

const START_TIMEOUT = 30_000;
const STOP_TIMEOUT = 10_000;
// `coracle problems` has a deadline of its own, which is shorter.
const PROBLEMS_TIMEOUT = 10_000;
// The timeout of `coracle settle` by default, and what the command takes beyond it.
const SETTLE_TIMEOUT = 10_000;
const SETTLE_MARGIN = 10_000;
// A year of a busy control plane is much work.
const CLOCK_TIMEOUT = 600_000;
const FORK_TIMEOUT = 60_000;
const MAX_LOG = 1 << 20;
// The exit codes of a control plane that has stopped: by the end of its command, or by SIGINT or SIGTERM to all processes.
const STOPPED = [0, 130, 143];

// The command of `coracle run` ends with its standard input, which ends with this process. So no control plane outlives tests that
// are killed.
const COMMAND = ['sh', '-c', 'echo "$KUBECONFIG"; exec cat >/dev/null'];

const FORKS = '/coracle/v1alpha1/forks';
// The line of the server in a kubeconfig that coracle writes, which is there once.
const SERVER = /^(\s*server: )"?([^"\s]+)"?$/m;

// A duration in Go's format, of milliseconds.
const duration = (milliseconds) => `${Math.round(milliseconds * 1000)}us`;

// A control plane, which is a process or a fork in one.
class ControlPlane {
  #stopped;

  constructor(program) {
    this.program = program;
  }

  async problems() {
    return this.#run(['problems'], PROBLEMS_TIMEOUT);
  }

  async settle({ timeout = SETTLE_TIMEOUT, quietFor, userAgents = [] } = {}) {
    const quiet = quietFor === undefined ? [] : [`--for=${duration(quietFor)}`];
    const seen = userAgents.map((pattern) => `--user-agent=${pattern}`);
    await this.#run(['settle', `--timeout=${duration(timeout)}`, ...quiet, ...seen], timeout + SETTLE_MARGIN);
  }

  get clock() {
    const run = async (...arguments_) => {
      const output = await this.#run(['clock', ...arguments_], CLOCK_TIMEOUT);
      return new Date(output.split(' ', 1)[0].trim());
    };
    return {
      now: () => run('--limit', '0'),
      advance: (by) => run('advance', '--', by),
      next: (count = 1) => run('next', '--', String(count)),
      set: (to) => run('set', to instanceof Date ? to.toISOString() : to),
      resume: () => run('resume'),
    };
  }

  async #run(arguments_, timeout) {
    const env = { ...process.env, KUBECONFIG: this.kubeconfigFile };
    const { stdout } = await promisify(execFile)(this.program, arguments_, { timeout, env });
    return stdout;
  }

  async fork({ clock, webhookServiceURLs } = {}) {
    const request = JSON.stringify({ clock, webhookServiceURLs });
    const { name, server } = JSON.parse(await call(this.kubeconfig, 'POST', FORKS, request));
    // The credentials and the authority are those of this control plane.
    const kubeconfig = this.kubeconfig.replace(SERVER, (_, before) => before + server);
    const fork = new Fork(this.root, name, kubeconfig);
    try {
      await writeFile(fork.kubeconfigFile, fork.kubeconfig, { mode: 0o600, flag: 'wx' });
    } catch (error) {
      await fork.stop();
      throw error;
    }
    return fork;
  }

  get isStopping() {
    return this.#stopped !== undefined;
  }

  stop() {
    this.#stopped ??= this.end();
    return this.#stopped;
  }

  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}

class Process extends ControlPlane {
  #child;
  #log;
  #exited;

  constructor(program, flags) {
    super(program);
    this.#log = new BoundedLog();
    this.#child = spawn(program, ['run', ...flags, '--', ...COMMAND], { stdio: 'pipe' });
    this.#child.stderr.on('data', (chunk) => this.#log.write(chunk));
    // That the program has ended already is reported by its exit.
    this.#child.stdin.on('error', () => {});
    this.#exited = new Promise((resolve) => {
      this.#child.once('error', (error) => resolve({ error }));
      // Its output is complete then.
      this.#child.once('close', (code, signal) => resolve({ code, signal }));
    });
  }

  async ready() {
    const deadline = new AbortController();
    try {
      const outcome = await Promise.race([
        firstLine(this.#child.stdout).then((line) => ({ line })),
        this.#exited,
        after(START_TIMEOUT, { late: true }, { signal: deadline.signal }),
      ]);
      if (outcome.error) {
        throw notAProgram(this.program, outcome.error);
      }
      if (outcome.late) {
        throw new Error(`${this.program} is not ready within ${START_TIMEOUT / 1000} s\n${this.log}`);
      }
      if (outcome.line === undefined) {
        const { code, signal } = outcome;
        throw new Error(`${this.program} does not start: ${signal ?? `exit code ${code}`}\n${this.log}`);
      }
      this.kubeconfigFile = outcome.line;
      this.kubeconfig = await readFile(this.kubeconfigFile, 'utf8');
    } catch (error) {
      this.#child.kill('SIGKILL');
      this.#child.stdin.destroy();
      throw error;
    } finally {
      deadline.abort();
    }
    // A control plane that is not stopped does not keep this process from its end.
    this.#hold('unref');
    return this;
  }

  get root() {
    return this;
  }

  get log() {
    return this.#log.toString();
  }

  async end() {
    this.#hold('ref');
    this.#child.stdin.end();
    const deadline = new AbortController();
    const late = after(STOP_TIMEOUT, undefined, { signal: deadline.signal });
    const outcome = await Promise.race([this.#exited, late]);
    deadline.abort();
    if (outcome === undefined) {
      this.#child.kill('SIGKILL');
      throw new Error(`coracle does not stop within ${STOP_TIMEOUT / 1000} s\n${this.log}`);
    }
    if (!STOPPED.includes(outcome.code)) {
      throw new Error(`coracle: ${outcome.signal ?? `exit code ${outcome.code}`}\n${this.log}`);
    }
  }

  #hold(how) {
    for (const handle of [this.#child, ...this.#child.stdio]) {
      handle[how]?.();
    }
  }
}

class Fork extends ControlPlane {
  #name;

  // The root is the control plane that the process was started for, which outlives its forks.
  constructor(root, name, kubeconfig) {
    super(root.program);
    this.root = root;
    this.#name = name;
    this.kubeconfig = kubeconfig;
    // The directory ends with the process, even if the tests are killed.
    this.kubeconfigFile = join(dirname(root.kubeconfigFile), `${name}.yaml`);
  }

  get log() {
    return this.root.log;
  }

  async end() {
    try {
      // Not at the control plane that was forked, which may be a fork that has ended.
      await call(this.root.kubeconfig, 'DELETE', `${FORKS}/${this.#name}`);
    } catch (error) {
      if (!this.root.isStopping) {
        throw error;
      }
      // It ends with the process then.
      await this.root.stop();
    } finally {
      await rm(this.kubeconfigFile, { force: true });
    }
  }
}

export async function start({ flags = [] } = {}) {
  return new Process(process.env.CORACLE_BIN || 'coracle', flags).ready();
}

export async function startFor(test, options) {
  const controlPlane = await start(options);
  test.after(async () => {
    try {
      await stopAfter(test, controlPlane);
    } finally {
      if (test.error) {
        report(test, 'coracle log', controlPlane.log);
      }
    }
  });
  return controlPlane;
}

// The control planes that were set up in this process, or are being set up.
const templates = new Map();

export function template(name, setUp, { flags = [] } = {}) {
  const key = JSON.stringify([name, process.env.CORACLE_BIN, ...flags]);
  if (!templates.has(key)) {
    templates.set(key, newTemplate(name, setUp, flags));
  }
  return templates.get(key);
}

async function newTemplate(name, setUp, flags) {
  const controlPlane = await start({ flags });
  try {
    await setUp(controlPlane);
  } catch (error) {
    const problems = await problemsOf(controlPlane);
    // The error of the set-up counts.
    await controlPlane.stop().catch(() => {});
    const found = problems && `\ncoracle problems:\n${problems}`;
    const message = `the set-up of the template ${JSON.stringify(name)} failed: ${error?.message ?? error}${found}`;
    throw new Error(message, { cause: error });
  }
  const fork = (options) => controlPlane.fork(options);
  return {
    fork,
    async forkFor(test, options) {
      const forked = await fork(options);
      test.after(() => stopAfter(test, forked));
      return forked;
    },
  };
}

// Stops the control plane of a test, and reports its problems if the test has failed.
async function stopAfter(test, controlPlane) {
  if (test.error) {
    report(test, 'coracle problems', await problemsOf(controlPlane));
  }
  await controlPlane.stop();
}

// The problems; for a control plane that does not respond the reason.
function problemsOf(controlPlane) {
  return controlPlane.problems().catch((error) => `${error.message}\n`);
}

function report(test, title, text) {
  if (text !== '') {
    // Reporters show a line each.
    for (const line of [`${title}:`, ...text.trimEnd().split('\n')]) {
      test.diagnostic(line);
    }
  }
}

function notAProgram(program, error) {
  const chosen = process.env.CORACLE_BIN;
  const message = chosen
    ? `CORACLE_BIN is ${JSON.stringify(chosen)}, which is not a program: ${error.code}`
    : `set CORACLE_BIN, or install coracle on the path: ${error.code}`;
  return new Error(message, { cause: error });
}

// Makes a request of the administrator, and resolves to the body of the response.
async function call(kubeconfig, method, path, body) {
  const member = (pattern) => {
    const found = pattern.exec(kubeconfig);
    if (!found) {
      throw new Error(`the kubeconfig has no line ${pattern}`);
    }
    return found.at(-1);
  };
  const data = (key) => Buffer.from(member(new RegExp(`^\\s*${key}-data: "?([^"\\s]+)"?$`, 'm')), 'base64');
  const options = {
    method,
    headers: { 'Content-Type': 'application/json' },
    ca: data('certificate-authority'),
    cert: data('client-certificate'),
    key: data('client-key'),
    // A connection of its own, which does not stay.
    agent: false,
    signal: AbortSignal.timeout(FORK_TIMEOUT),
  };
  const url = member(SERVER) + path;
  const sent = request(url, options);
  // The response has the errors after its beginning too.
  sent.on('error', () => {});
  sent.end(body);
  let response;
  let answer;
  try {
    [response] = await once(sent, 'response');
    answer = await text(response);
  } catch (error) {
    throw new Error(`coracle: ${method} ${path}: ${error.cause?.message ?? error.message}`, { cause: error });
  }
  if (response.statusCode >= 300) {
    throw new Error(`coracle: ${method} ${path}: ${response.statusCode} ${response.statusMessage}: ${messageOf(answer)}`);
  }
  return answer;
}

// The message of a Status.
function messageOf(answer) {
  try {
    return JSON.parse(answer).message;
  } catch {
    return answer;
  }
}

// The first line of a stream, which is read to its end. If it ends before, this does not: the end of the program is reported instead.
function firstLine(stream) {
  let text = '';
  stream.setEncoding('utf8');
  return new Promise((resolve) => {
    stream.on('data', (chunk) => {
      if (!text.includes('\n')) {
        text += chunk;
        if (text.includes('\n')) {
          resolve(text.slice(0, text.indexOf('\n')));
        }
      }
    });
  });
}

// A log that keeps the beginning of what is written to it.
class BoundedLog {
  #chunks = [];
  #left = MAX_LOG;

  write(chunk) {
    const kept = chunk.subarray(0, this.#left);
    this.#left -= kept.length;
    if (kept.length > 0) {
      this.#chunks.push(kept);
    }
  }

  toString() {
    return Buffer.concat(this.#chunks).toString();
  }
}
