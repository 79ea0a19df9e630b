// The data of the page: one picture, then one stream of its changes.

const LONGEST_PAUSE = 10000;
const SILENCE = 25000;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/// Reads a path below `data/`; all URLs are relative, so that the page works below any prefix.
export async function read(path, parameters = {}, signal) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (![undefined, null, ''].includes(value)) query.set(name, value);
  }
  const response = await fetch(`data/${path}?${query}`, { signal, cache: 'no-store', redirect: 'error' });
  if (response.ok) return response.json();
  const text = await response.text();
  let message = text;
  try { message = JSON.parse(text).message ?? text; } catch { /* Plain text. */ }
  throw new Refused(response.status, message.slice(0, 500));
}

/// The objects as they are now, kept up to date by one stream.
export class Live {
  /// - changed: called with changed and deleted nodes, null for a new picture; connected: with whether the stream is there
  constructor({ changed, connected }) {
    Object.assign(this, { nodes: new Map(), revision: '0', oldest: '0', now: '', isTruncated: false, changed, connected, pause: 250 });
  }

  async run() {
    for (let needsPicture = true; ;) {
      try {
        if (needsPicture) {
          this.load(await read('picture'));
          this.connected(true);
        }
        needsPicture = false;
        await this.follow();
      } catch (error) {
        // Expired, or a server that begins anew: the picture is read again.
        needsPicture = error instanceof Refused || error instanceof SyntaxError;
        this.connected(false, error);
        if (error.status === 401 || error.status === 403) this.pause = LONGEST_PAUSE;
      }
      await new Promise(resolve => setTimeout(resolve, this.pause * (0.75 + Math.random() / 2)));
      this.pause = Math.min(LONGEST_PAUSE, this.pause * 2);
    }
  }

  load(picture) {
    const { objects, oldest, isTruncated, now, resourceVersion: revision } = picture;
    Object.assign(this, { nodes: new Map(objects.map(node => [node.uid, node])), oldest, isTruncated, now, revision });
    this.changed(null, []);
  }

  async follow() {
    const abort = new AbortController();
    let watchdog;
    const alive = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => abort.abort(), SILENCE);
    };
    try {
      alive();
      const response = await fetch(`data/picture?watch=1&since=${encodeURIComponent(this.revision)}`,
        { signal: abort.signal, cache: 'no-store' });
      if (!response.ok) throw new Refused(response.status, (await response.text()).slice(0, 500));
      this.connected(true);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ''; ;) {
        const { value, done } = await reader.read();
        if (done) return;
        alive();
        this.pause = 250;
        const lines = (rest + value).split('\n');
        rest = lines.pop();
        for (const line of lines) if (line) this.apply(JSON.parse(line));
      }
    } finally {
      clearTimeout(watchdog);
      abort.abort();
    }
  }

  apply({ changed, deleted, resourceVersion, now }) {
    this.revision = resourceVersion;
    this.now = now;
    for (const node of changed) this.nodes.set(node.uid, node);
    const gone = deleted.map(uid => this.nodes.get(uid)).filter(Boolean);
    for (const uid of deleted) this.nodes.delete(uid);
    this.changed(changed, gone);
  }
}
