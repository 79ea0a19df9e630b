// The timeline: the writes and Events of the history that is kept, and a slider through it.

import { clockTime, colours, fitted, onFrame } from './dom.js';

const MOST_ENTRIES = 2000;

export class Timeline {
  /// - moved: called with the revision to show, null for now; isHidden: whether the writes of an object are left out, by its uid
  constructor({ canvas, slider, moment, moved, isHidden }) {
    Object.assign(this, { canvas, slider, moment, moved, isHidden, events: [], entries: [], positions: [], oldest: 0, newest: 0, at: null, uid: null });
    this.clear();
    slider.addEventListener('input', () => this.go(Number(slider.value)));
    this.draw = onFrame(() => this.paint());
    this.colour = colours(this.draw);
    new ResizeObserver(this.draw).observe(canvas.parentElement);
  }

  /// Adds writes, oldest first.
  add(entries) {
    for (const entry of entries) {
      const revision = Number(entry.revision);
      if (entry.code) {
        this.refusals.push({ ...entry, after: this.newestEntry });
        continue;
      }
      const key = `${entry.uid} ${revision}`;
      if (!(revision > 0) || this.known.has(key)) continue;
      this.known.add(key);
      this.all.push({ ...entry, revision });
      this.newestEntry = Math.max(this.newestEntry, revision);
    }
    this.all.sort((a, b) => a.revision - b.revision);
    for (const { uid, revision } of this.all.splice(0, Math.max(0, this.all.length - MOST_ENTRIES))) this.known.delete(`${uid} ${revision}`);
    this.refusals.splice(0, Math.max(0, this.refusals.length - 200));
    this.arrange();
  }

  setEvents(events) {
    this.events = events.map(event => ({ ...event, revision: Number(event.revision) }));
    this.draw();
  }

  clear() {
    Object.assign(this, { known: new Set(), all: [], refusals: [], newestEntry: 0 });
  }

  setRange(oldest, newest) {
    Object.assign(this, { oldest: Number(oldest), newest: Number(newest) });
    this.arrange();
  }

  setObject(uid) {
    this.uid = uid;
    this.draw();
  }

  arrange() {
    const revisions = new Set([this.oldest]);
    this.entries = this.all.filter(({ uid, revision }) => revision >= this.oldest && !this.isHidden(uid));
    for (const { revision } of this.entries) revisions.add(revision);
    // The newest one is that of now.
    this.positions = [...revisions].filter(revision => revision > 0).slice(0, -1);
    this.slider.max = String(this.positions.length);
    this.place();
    this.draw();
  }

  place() {
    const { at, positions } = this;
    const index = at === null ? positions.length : Math.max(0, positions.findLastIndex(revision => revision <= at));
    this.slider.value = String(index);
    this.describe(index);
  }

  go(index) {
    const bounded = Math.min(Math.max(0, index), this.positions.length);
    this.at = this.positions[bounded] ?? null;
    this.slider.value = String(bounded);
    this.describe(bounded);
    this.moved(this.at);
    this.draw();
  }

  step(by) {
    this.go(Number(this.slider.value) + by);
  }

  show(revision) {
    this.at = revision;
    this.place();
    this.moved(revision);
    this.draw();
  }

  describe(index) {
    const revision = this.positions[index];
    const entry = this.entries.findLast(entry => entry.revision <= (revision ?? Infinity));
    const who = entry?.userAgent ? ` by ${entry.userAgent.split(/[/ ]/)[0]}` : '';
    const what = entry && entry.revision === (revision ?? entry.revision) ? `${entry.verb} ${entry.resource.split('.')[0]} ${entry.name}${who}` : '';
    const text = [`revision ${revision ?? this.newest}`, clockTime(entry?.time), what].filter(Boolean).join(' · ');
    this.moment.textContent = text;
    this.slider.setAttribute('aria-valuetext', revision === undefined ? `live, ${text}` : text);
  }

  /// The place of a revision on the axis, from 0 to 1.
  share(revision) {
    let [low, high] = [0, this.positions.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.positions[middle] < revision) low = middle + 1;
      else high = middle;
    }
    return low / Math.max(1, this.positions.length);
  }

  paint() {
    const { canvas, colour } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    const ratio = fitted(canvas, width, height);
    const c = canvas.getContext('2d');
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const edge = 8;
    const x = revision => edge + this.share(revision) * (width - 2 * edge);
    const middle = height / 2;
    const isFaded = uid => this.uid && uid !== this.uid;
    c.fillStyle = colour('line');
    c.fillRect(edge, middle, width - 2 * edge, 1);
    const verbs = { create: colour('ready'), delete: colour('failing') };
    const plain = colour('muted');
    for (const { revision, uid, isDeletion, verb, subresource } of this.entries) {
      const isOwn = uid === this.uid;
      c.globalAlpha = isFaded(uid) ? 0.25 : 1;
      const kind = isDeletion ? 'delete' : subresource ? '' : verb;
      c.fillStyle = isOwn ? colour('accent') : verbs[kind] ?? plain;
      const tall = isOwn || kind in verbs ? 11 : 7;
      c.fillRect(x(revision) - 1, middle - 2 - tall, isOwn ? 2.5 : 1.5, tall);
    }
    for (const { revision, uid, type } of this.events) {
      if (revision < this.oldest) continue;
      const [at, isWarning] = [x(revision), type === 'Warning'];
      c.globalAlpha = isFaded(uid) ? 0.25 : 1;
      c.fillStyle = isWarning ? colour('progressing') : uid === this.uid ? colour('accent') : plain;
      c.beginPath();
      if (isWarning) {
        c.moveTo(at, middle + 4);
        c.lineTo(at + 4, middle + 11);
        c.lineTo(at - 4, middle + 11);
      } else c.arc(at, middle + 8, 1.6, 0, 7);
      c.fill();
    }
    c.globalAlpha = 1;
    c.fillStyle = colour('failing');
    for (const { after } of this.refusals) c.fillRect(x(after) - 1, middle - 3, 2, 7);
  }
}
