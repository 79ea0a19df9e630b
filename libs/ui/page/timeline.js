// The timeline: the writes and Events of the history that is kept, and a slider through it.

import { clockTime } from './dom.js';

const MOST_ENTRIES = 2000;

export class Timeline {
  /// - moved: called with the revision to show; null for now
  constructor({ canvas, slider, moment, moved }) {
    Object.assign(this, { canvas, slider, moment, moved, all: [], entries: [], isHidden: () => false, events: [], refusals: [], positions: [], oldest: 0, newest: 0, at: null, uid: null });
    this.known = new Set();
    slider.addEventListener('input', () => this.go(Number(slider.value)));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
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
      this.newestEntry = Math.max(this.newestEntry ?? 0, revision);
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

  /// Forgets all, as after another server took the place of this one.
  clear() {
    this.known.clear();
    Object.assign(this, { all: [], refusals: [], newestEntry: 0 });
  }

  setRange(oldest, newest) {
    if (this.oldest === Number(oldest) && this.newest === Number(newest)) return;
    this.oldest = Number(oldest);
    this.newest = Number(newest);
    this.arrange();
  }

  /// - isHidden: whether the writes of an object are left out, by its uid
  setHidden(isHidden) {
    this.isHidden = isHidden;
    this.arrange();
  }

  setObject(uid) {
    if (this.uid === uid) return;
    this.uid = uid;
    this.draw();
  }

  arrange() {
    const revisions = new Set([this.oldest]);
    this.entries = this.all.filter(({ uid, revision }) => revision >= this.oldest && !this.isHidden(uid));
    for (const { revision } of this.entries) revisions.add(revision);
    this.positions = [...revisions].filter(revision => revision > 0);
    this.slider.max = String(this.positions.length);
    this.place();
    this.draw();
  }

  place() {
    const { at, positions } = this;
    let index = positions.length;
    if (at !== null) {
      index = positions.findLastIndex(revision => revision <= at);
      index = Math.max(0, index);
    }
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

  /// Shows a revision.
  show(revision) {
    this.at = revision;
    this.place();
    this.moved(revision);
    this.draw();
  }

  describe(index) {
    const revision = this.positions[index];
    const entry = this.entries.findLast(entry => entry.revision <= (revision ?? Infinity));
    const isExact = entry && (revision === undefined || entry.revision === revision);
    const what = isExact ? `${entry.verb} ${entry.resource.split('.')[0]} ${entry.name}` : '';
    const who = isExact && entry.userAgent ? ` by ${entry.userAgent.split(/[/ ]/)[0]}` : '';
    const parts = [revision === undefined ? `revision ${this.newest || '-'}` : `revision ${revision}`, clockTime(entry?.time), what + who];
    const text = parts.filter(Boolean).join(' · ');
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

  draw() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.paint();
    });
  }

  paint() {
    const { canvas } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const c = canvas.getContext('2d');
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    const style = getComputedStyle(document.documentElement);
    const colour = name => style.getPropertyValue(`--${name}`).trim();
    const edge = 8;
    const x = revision => edge + this.share(revision) * (width - 2 * edge);
    const middle = height / 2;
    const isFaded = uid => this.uid && uid !== this.uid;
    c.fillStyle = colour('line');
    c.fillRect(edge, middle, width - 2 * edge, 1);
    const verbs = { create: colour('ready'), delete: colour('failing') };
    const plain = colour('muted');
    for (const { revision, uid, isDeletion, verb } of this.entries) {
      const isOwn = uid === this.uid;
      c.globalAlpha = isFaded(uid) ? 0.25 : 1;
      c.fillStyle = isOwn ? colour('accent') : verbs[isDeletion ? 'delete' : verb] ?? plain;
      const tall = isOwn || isDeletion || verb === 'create' ? 11 : 7;
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
    for (const { after } of this.refusals) c.fillRect(x(after ?? 0) - 1, middle - 3, 2, 7);
  }
}
