// The data of the page: one picture, then one stream of its changes.

const LONGEST_PAUSE = 10000;
const SILENCE = 25000;

/// Reads a path below `data/`; all URLs are relative, so that the page works below any prefix.
export async function read(path, parameters = {}, signal) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (![undefined, null, ''].includes(value)) query.set(name, value);
  }
  return (await get(`${path}?${query}`, signal)).json();
}

async function get(path, signal) {
  const response = await fetch(`data/${path}`, { signal, cache: 'no-store', redirect: 'error' });
  if (response.ok) return response;
  const text = await response.text();
  let message = text;
  try { message = JSON.parse(text).message ?? text; } catch { /* Plain text. */ }
  throw Object.assign(new Error(message.slice(0, 500)), { status: response.status });
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
        needsPicture ||= error.status === 410 || error instanceof SyntaxError;
        this.connected(false, error);
        if ([401, 403].includes(error.status)) this.pause = LONGEST_PAUSE;
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
      const response = await get(`picture?watch=1&since=${this.revision}`, abort.signal);
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

  apply({ changed, deleted, resourceVersion: revision, now, oldest, isTruncated }) {
    Object.assign(this, { revision, now, oldest, isTruncated });
    for (const node of changed) this.nodes.set(node.uid, node);
    const gone = deleted.map(uid => this.nodes.get(uid)).filter(Boolean);
    for (const uid of deleted) this.nodes.delete(uid);
    this.changed(changed, gone);
  }
}
