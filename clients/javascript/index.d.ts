/// <reference lib="esnext.disposable" />

/** A running control plane. All its data is in memory. */
export interface ControlPlane {
  /** The administrator's kubeconfig, as YAML. */
  readonly kubeconfig: string;
  /** The path of a file with the same content, for programs. It exists until the control plane stops. */
  readonly kubeconfigFile: string;
  /** The beginning of the program's log: at most 1 MiB. `coracle run` prints its log when it fails; the flag `-v` prints it always. */
  readonly log: string;
  /**
   * The objects that are not ready, have failed or are terminating, and their newest events, a line each. Empty if there are none.
   * It is rejected if the control plane does not respond.
   */
  problems(): Promise<string>;
  /** Stops the control plane, within 10 seconds. A second call returns the same. It is rejected, with the log, if the program fails. */
  stop(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
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

/** The members of the context of a test of `node:test` that {@link startFor} uses. */
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
