#!/usr/bin/env node
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");
const { binaryPath } = require("./binary.js");

function fail(message) {
  console.error(`coracle: ${message}`);
  process.exit(1);
}

let path;
try {
  path = binaryPath();
} catch (error) {
  fail(error.message);
}

const child = spawn(path, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => fail(`${path} cannot be started: ${error.message}`));
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) {
  process.on(signal, () => {
    // Ctrl-C in a terminal reaches the binary by itself. A second signal would end the delay of its shutdown.
    if (signal !== "SIGINT" || !process.stdin.isTTY) {
      child.kill(signal);
    }
  });
}
// As a shell says it: 128 and the signal's number if a signal ended it.
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
