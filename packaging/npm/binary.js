"use strict";

/** The package with the binary for this platform. */
const NAME = `coracle-k8s-${process.platform}-${process.arch}`;

/**
 * Returns the path of the binary.
 *
 * @throws The platform is not supported, or its package is not installed.
 */
function binaryPath() {
  const supported = Object.keys(require("./package.json").optionalDependencies);
  if (!supported.includes(NAME)) {
    const platforms = supported.map((name) => name.replace("coracle-k8s-", "")).join(", ");
    throw new Error(`there is no binary for ${process.platform}-${process.arch}, only for ${platforms}`);
  }
  try {
    return require.resolve(`${NAME}/coracle`);
  } catch {
    throw new Error(
      `the package ${NAME} is not installed: npm leaves it out with --omit=optional, and if a lock file or node_modules ` +
        "is from another platform",
    );
  }
}

module.exports = { binaryPath };
