// A client of WebDriver, as far as the tests of the page need one.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';

const DRIVER = 'chromedriver';
const START_TIMEOUT = 20_000;
const ELEMENT = 'element-6066-11e4-a52e-4f735466cecf';

export const KEYS = { down: '\uE015', left: '\uE012', right: '\uE014', enter: '\uE007', escape: '\uE00C', tab: '\uE004' };

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/// A browser, with a driver of its own.
export class Browser {
  /// - scheme: `dark` or `light`
  static async start({ width = 1440, height = 900, scheme = 'light', reducedMotion = false } = {}) {
    const port = await freePort();
    const driver = spawn(DRIVER, [`--port=${port}`, '--log-level=WARNING'], { stdio: ['ignore', 'ignore', 'inherit'] });
    const browser = new Browser(driver, `http://127.0.0.1:${port}`);
    const until = Date.now() + START_TIMEOUT;
    for (;;) {
      try {
        if ((await browser.call('GET', '/status')).ready) break;
      } catch (error) {
        if (Date.now() > until || driver.exitCode !== null) throw error;
      }
      await new Promise(resolve => setTimeout(resolve, 50));
    }
    const args = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--hide-scrollbars', '--force-color-profile=srgb'];
    if (reducedMotion) args.push('--force-prefers-reduced-motion');
    const alwaysMatch = { browserName: 'chrome', acceptInsecureCerts: true, 'goog:chromeOptions': { args }, 'goog:loggingPrefs': { browser: 'ALL' } };
    const { sessionId } = await browser.call('POST', '/session', { capabilities: { alwaysMatch } });
    browser.session = `/session/${sessionId}`;
    await browser.show(width, height, scheme, reducedMotion);
    return browser;
  }

  constructor(driver, url) {
    Object.assign(this, { driver, url, session: '' });
  }

  async call(method, path, body) {
    const response = await fetch(this.url + this.session + path, { method, body: method === 'POST' ? JSON.stringify(body ?? {}) : undefined });
    const { value } = await response.json();
    if (!response.ok) throw new Error(`${method} ${path}: ${value.error}: ${value.message}`);
    return value;
  }

  devTools(cmd, params = {}) {
    return this.call('POST', '/goog/cdp/execute', { cmd, params });
  }

  /// Changes the size of the page and the colours that the user prefers.
  async show(width, height, scheme, reducedMotion = false) {
    await this.devTools('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: width < 600 });
    await this.devTools('Emulation.setEmulatedMedia', { features: [
      { name: 'prefers-color-scheme', value: scheme }, { name: 'prefers-reduced-motion', value: reducedMotion ? 'reduce' : 'no-preference' }] });
  }

  open(url) { return this.call('POST', '/url', { url }); }

  /// Runs a script in the page, as the body of a function.
  run(script, ...args) { return this.call('POST', '/execute/sync', { script, args }); }

  /// Runs a script again and again until it returns something that is true, and returns that.
  async until(script, ...args) {
    const found = await this.within(20_000, script, ...args);
    if (found) return found;
    throw new Error(`not so within 20 s: ${script}\n${await this.run('return document.body.innerText')}`);
  }

  /// The same for so many milliseconds; then what it returned last.
  async within(time, script, ...args) {
    for (const end = Date.now() + time; ;) {
      const found = await this.run(script, ...args);
      if (found || Date.now() > end) return found;
      await new Promise(resolve => setTimeout(resolve, 50));
    }
  }

  /// Sends keys to the element that has the focus.
  async keys(...keys) {
    const actions = keys.flatMap(value => [{ type: 'keyDown', value }, { type: 'keyUp', value }]);
    await this.call('POST', '/actions', { actions: [{ type: 'key', id: 'keyboard', actions }] });
  }

  async click(x, y) {
    const actions = [
      { type: 'pointerMove', duration: 0, x: Math.round(x), y: Math.round(y) }, { type: 'pointerDown', button: 0 }, { type: 'pointerUp', button: 0 }];
    await this.call('POST', '/actions', { actions: [{ type: 'pointer', id: 'mouse', parameters: { pointerType: 'mouse' }, actions }] });
  }

  /// Clicks an element that a selector finds.
  async press(selector) {
    const found = await this.call('POST', '/element', { using: 'css selector', value: selector });
    await this.call('POST', `/element/${found[ELEMENT]}/click`);
  }

  /// The messages of the console that are errors: of the content security policy too.
  async errors() {
    const entries = await this.call('POST', '/se/log', { type: 'browser' });
    return entries.filter(({ level }) => level === 'SEVERE').map(({ message }) => message);
  }

  async screenshot() {
    return Buffer.from(await this.call('GET', '/screenshot'), 'base64');
  }

  async stop() {
    try {
      await this.call('DELETE', '');
    } finally {
      this.driver.kill();
    }
  }
}
