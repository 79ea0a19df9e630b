// Starts a Coracle control plane for tests, and stops it with them. The program is $CORACLE_BIN, or coracle on the path.
import { execFile, spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { setTimeout as after } from 'node:timers/promises';
import { promisify } from 'node:util';

const START_TIMEOUT = 30_000;
const STOP_TIMEOUT = 10_000;
// `coracle problems` has a deadline of its own, which is shorter.
const PROBLEMS_TIMEOUT = 10_000;
// `coracle settle` waits for less.
const SETTLE_TIMEOUT = 20_000;
// A year of a busy control plane is much work.
const CLOCK_TIMEOUT = 600_000;
const MAX_LOG = 1 << 20;

// The command of `coracle run` ends with its standard input, which ends with this process. So no control plane outlives tests that
// are killed.
const COMMAND = ['sh', '-c', 'echo "$KUBECONFIG"; exec cat >/dev/null'];

class ControlPlane {
  #program;
  #child;
  #log;
  #exited;
  #stopped;

  constructor(program, flags) {
    this.#program = program;
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
        throw notAProgram(this.#program, outcome.error);
      }
      if (outcome.late) {
        throw new Error(`${this.#program} is not ready within ${START_TIMEOUT / 1000} s\n${this.log}`);
      }
      if (outcome.line === undefined) {
        const { code, signal } = outcome;
        throw new Error(`${this.#program} does not start: ${signal ?? `exit code ${code}`}\n${this.log}`);
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

  get log() {
    return this.#log.toString();
  }

  async problems() {
    return this.#run(['problems'], PROBLEMS_TIMEOUT);
  }

  async settle() {
    await this.#run(['settle'], SETTLE_TIMEOUT);
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
    const { stdout } = await promisify(execFile)(this.#program, arguments_, { timeout, env });
    return stdout;
  }

  stop() {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop() {
    this.#hold('ref');
    this.#child.stdin.end();
    const deadline = new AbortController();
    const late = after(STOP_TIMEOUT, undefined, { signal: deadline.signal });
    const outcome = await Promise.race([this.#exited, late]);
    deadline.abort();
    if (outcome === undefined) {
      this.#child.kill('SIGKILL');
      throw new Error(`coracle does not stop within ${STOP_TIMEOUT / 1000} s`);
    }
    if (outcome.code !== 0) {
      throw new Error(`coracle: ${outcome.signal ?? `exit code ${outcome.code}`}\n${this.log}`);
    }
  }

  #hold(how) {
    for (const handle of [this.#child, ...this.#child.stdio]) {
      handle[how]?.();
    }
  }

  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}

export async function start({ flags = [] } = {}) {
  return new ControlPlane(process.env.CORACLE_BIN || 'coracle', flags).ready();
}

export async function startFor(test, options) {
  const controlPlane = await start(options);
  test.after(async () => {
    const failed = Boolean(test.error);
    if (failed) {
      const problems = await controlPlane.problems().catch((error) => `${error.message}\n`);
      report(test, 'coracle problems', problems);
    }
    try {
      await controlPlane.stop();
    } finally {
      if (failed) {
        report(test, 'coracle log', controlPlane.log);
      }
    }
  });
  return controlPlane;
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
