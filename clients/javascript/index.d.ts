/// <reference lib="esnext.disposable" />

/** A running control plane. All its data is in memory. */
export interface ControlPlane {
  /** The administrator's kubeconfig, as YAML. */
  readonly kubeconfig: string;
  /** The path of a file with the same content, for programs. It exists until the control plane stops. */
  readonly kubeconfigFile: string;
  /**
   * The beginning of the program's log: at most 1 MiB. `coracle run` prints its log when it fails; the flag `-v` prints it always. A
   * fork has that of its program.
   */
  readonly log: string;
  /**
   * The objects that are not ready, have failed or are terminating, and their newest events, a line each. Empty if there are none.
   * It is rejected if the control plane does not respond.
   */
  problems(): Promise<string>;
  /**
   * Waits until nothing is left to happen at this moment of the clock. It is rejected, with what is under way, if that takes more than
   * the timeout.
   */
  settle(options?: SettleOptions): Promise<void>;
  /** The clock, which can be moved on if the control plane was started with the flag `--clock=manual`. */
  readonly clock: Clock;
  /**
   * Makes a control plane that begins with the objects, the history and the time of this one, and goes its own way: nothing that happens in
   * one is seen in the other. It costs milliseconds. The caller stops it; it ends with the control plane that was started in any case. It
   * is rejected, with the message of the server, if there can be no fork.
   */
  fork(options?: ForkOptions): Promise<ControlPlane>;
  /**
   * Stops the control plane, within 10 seconds, with all its forks if it is none itself. A second call returns the same. It is rejected,
   * with the log, if the program fails.
   */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface SettleOptions {
  /** The longest wait, in milliseconds: 10,000 by default, an hour at most. */
  timeout?: number;
  /** The time for which nothing may have been written, in milliseconds: 50 by default. */
  quietFor?: number;
  /**
   * Patterns of user agents, with `*` for any characters: a client of each must have made a request before, such as an operator that is
   * still starting.
   */
  userAgents?: readonly string[];
}

/** The clock of a control plane. Its methods resolve to its time, and are rejected if the clock cannot be moved so. */
export interface Clock {
  now(): Promise<Date>;
  /** Moves the clock on, from timer to timer, and waits at each until the control plane has settled. `by` is such as `24h`. */
  advance(by: string): Promise<Date>;
  /** Moves the clock to the times at which the next timers fire, so many times: once by default. */
  next(count?: number): Promise<Date>;
  /** Moves the clock to a time that is not earlier than its own. */
  set(to: Date | string): Promise<Date>;
  /** Lets the clock run by itself, from its time on. */
  resume(): Promise<Date>;
}

export interface ForkOptions {
  /** The clock of the fork, if it is another one than that of the control plane. */
  clock?: 'real' | 'manual';
  /** The URLs of servers of the test, by NAMESPACE/NAME, that webhooks call in the fork instead of these Services. */
  webhookServiceURLs?: Readonly<Record<string, string>>;
}

export interface StartOptions {
  /** Flags of `coracle run`, such as `--nodes=3`. */
  flags?: readonly string[];
}

/**
 * Starts a control plane. The caller stops it; it ends with this process in any case.
 *
 * It is rejected if there is no program, or if the control plane is not ready within 30 seconds; the error has its log.
 */
export function start(options?: StartOptions): Promise<ControlPlane>;

/** The members of the context of a test of `node:test` that {@link startFor} and {@link Template.forkFor} use. */
export interface TestContext {
  after(hook: () => Promise<void>): void;
  diagnostic(message: string): void;
  readonly error?: unknown;
}

/**
 * Starts a control plane for one test of `node:test`, and stops it after the test. If the test has failed, its problems and its log are
 * diagnostics of the test.
 */
export function startFor(test: TestContext, options?: StartOptions): Promise<ControlPlane>;

/** A control plane that was set up once in this process, for tests that each fork it. */
export interface Template {
  /** Makes a fork, as {@link ControlPlane.fork} does. */
  fork(options?: ForkOptions): Promise<ControlPlane>;
  /**
   * Makes a fork for one test of `node:test`, and stops it after the test. If the test has failed, its problems are diagnostics of the
   * test.
   */
  forkFor(test: TestContext, options?: ForkOptions): Promise<ControlPlane>;
}

/**
 * Sets up a control plane once in this process, by its name and flags. Callers that come together wait for one set-up. The control plane
 * ends with this process, which it does not keep from its end.
 *
 * If the set-up fails, it is rejected for all callers, with the problems of the control plane.
 */
export function template(name: string, setUp: (controlPlane: ControlPlane) => unknown, options?: StartOptions): Promise<Template>;
