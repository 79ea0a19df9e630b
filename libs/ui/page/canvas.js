// The picture: draws the part of the forest that is seen.

import { abbreviation, colours, fitted, onFrame } from './dom.js';
import { isBelow } from './forest.js';

// Below it cards are drawn without text.
const TEXT_ZOOM = 0.45;
const LEAST_ZOOM = 0.12;
const MOST_ZOOM = 2;
const DURATION = 200;
const FLASH = 1200;
const MOST_TIMES = 1000;
const MOST_TEXTS = 20000;
const shapes = {};
const calm = matchMedia('(prefers-reduced-motion: reduce)');

/// The durations of the last frames in milliseconds, for tests.
export const frameTimes = [];

export class Canvas {
  /// - picked: called with the uid that was clicked, and whether it is to be opened
  constructor(canvas, area, picked) {
    Object.assign(this, { canvas, area, picked, zoom: 1, x: 0, y: 0, forest: null, selected: null, hovered: null });
    this.context = canvas.getContext('2d');
    this.shown = new Map();
    this.texts = new Map();
    this.pointers = new Map();
    this.draw = onFrame(() => this.paint());
    this.colour = colours(this.draw);
    const family = getComputedStyle(document.body).fontFamily;
    this.fonts = { name: `500 12px ${family}`, small: `11px ${family}`, header: `600 13px ${family}` };
    new ResizeObserver(() => this.resize()).observe(area);
    this.listen();
    this.resize();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.area;
    Object.assign(this, { width, height, ratio: fitted(this.canvas, width, height) });
    this.resized?.();
    this.clamp();
    this.paint();
  }

  /// Shows a forest. Items that were elsewhere move to their places.
  show(forest) {
    const now = performance.now();
    const shown = new Map();
    for (const [uid, item] of forest.items) {
      const old = this.shown.get(uid);
      const { x, y } = old ? position(old, now) : item;
      const isChanged = !old || ['resourceVersion', 'state'].some(name => old.item.node[name] !== item.node[name]);
      const since = old && x === item.x && y === item.y ? old.since : now;
      const flash = !isChanged ? old.flash : this.forest ? now : 0;
      shown.set(uid, { item, x, y, since, flash, isNew: !old && Boolean(this.forest) });
    }
    this.shown = shown;
    this.forest = forest;
    this.until = calm.matches ? 0 : now + FLASH;
    this.clamp();
    this.draw();
  }

  clamp() {
    if (!this.forest) return;
    const [w, h] = [this.forest.width * this.zoom, this.forest.height * this.zoom];
    this.x = Math.min(Math.max(this.x, 0), Math.max(0, w - this.width));
    this.y = Math.min(Math.max(this.y, 0), Math.max(0, h - this.height));
  }

  scrollBy(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.clamp();
    this.draw();
  }

  /// - x, y: the point that stays where it is
  zoomBy(factor, x = this.width / 2, y = this.height / 2) {
    const zoom = Math.min(MOST_ZOOM, Math.max(LEAST_ZOOM, this.zoom * factor));
    this.x = (this.x + x) * (zoom / this.zoom) - x;
    this.y = (this.y + y) * (zoom / this.zoom) - y;
    this.zoom = zoom;
    this.clamp();
    this.draw();
  }

  fit() {
    const whole = Math.min(1, this.width / this.forest?.width, this.height / this.forest?.height);
    this.zoomBy((this.zoom === 1 ? whole : 1) / this.zoom, 0, 0);
  }

  reveal(uid) {
    const item = this.forest?.items.get(uid);
    if (!item) return;
    const z = this.zoom;
    const into = (at, from, length, seen) => Math.min(Math.max(at, (from + length) * z - seen + 24), from * z - 24);
    this.x = into(this.x, item.x, item.w, this.width);
    this.y = into(this.y, item.y, item.h, this.height);
    this.clamp();
    this.draw();
  }

  itemAt(x, y) {
    if (!this.forest) return null;
    const [wx, wy] = [(x + this.x) / this.zoom, (y + this.y) / this.zoom];
    for (const { item } of this.shown.values()) {
      if (wx >= item.x && wx <= item.x + item.w && wy >= item.y && wy <= item.y + item.h) return item;
    }
    return null;
  }

  listen() {
    const { area, pointers } = this;
    const place = ({ clientX, clientY }) => {
      const { left, top } = area.getBoundingClientRect();
      return { x: clientX - left, y: clientY - top };
    };
    const pick = event => {
      const { x, y } = place(event);
      return this.itemAt(x, y)?.node.uid ?? null;
    };
    area.addEventListener('wheel', event => {
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : 1;
      const [dx, dy, { x, y }] = [event.deltaX * unit, event.deltaY * unit, place(event)];
      if (event.ctrlKey || event.metaKey) this.zoomBy(Math.exp(-dy * 0.01), x, y);
      else if (event.shiftKey) this.scrollBy(dy, 0);
      else this.scrollBy(dx, dy);
    }, { passive: false });
    area.addEventListener('pointerdown', event => {
      if (event.button !== 0) return;
      pointers.set(event.pointerId, place(event));
      this.travelled = 0;
    });
    area.addEventListener('pointermove', event => {
      const before = pointers.get(event.pointerId);
      if (!before) return this.hover(pick(event));
      const now = place(event);
      this.travelled += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
      pointers.set(event.pointerId, now);
      if (this.travelled < 5) return;
      if (!area.hasPointerCapture(event.pointerId)) area.setPointerCapture(event.pointerId);
      if (pointers.size === 2) {
        const [, other] = [...pointers].find(([id]) => id !== event.pointerId);
        const distance = ({ x, y }) => Math.hypot(x - other.x, y - other.y) || 1;
        this.zoomBy(distance(now) / distance(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
      }
      this.scrollBy((before.x - now.x) / pointers.size, (before.y - now.y) / pointers.size);
    });
    const end = event => {
      if (pointers.delete(event.pointerId) && event.type === 'pointerup' && this.travelled < 5) this.picked(pick(event), true);
    };
    area.addEventListener('pointerup', end);
    area.addEventListener('pointercancel', end);
    area.addEventListener('pointerleave', () => this.hover(null));
  }

  hover(uid) {
    if (this.hovered === uid) return;
    this.hovered = uid;
    this.area.classList.toggle('pointing', uid !== null);
    this.draw();
  }

  paint() {
    if (!this.forest) return;
    const began = performance.now();
    const { context: c, zoom, colour } = this;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = colour('canvas');
    c.fillRect(0, 0, this.width, this.height);
    c.setTransform(this.ratio * zoom, 0, 0, this.ratio * zoom, -this.x * this.ratio, -this.y * this.ratio);
    c.textBaseline = 'middle';
    const view = { left: this.x / zoom, top: this.y / zoom, right: (this.x + this.width) / zoom, bottom: (this.y + this.height) / zoom };
    const isSeen = (x, y, w, h) => x < view.right && x + w > view.left && y < view.bottom && y + h > view.top;
    for (const shown of this.shown.values()) {
      shown.at = calm.matches ? shown.item : position(shown, began);
      shown.isSeen = isSeen(shown.at.x, shown.at.y, shown.item.w, shown.item.h);
    }
    this.headers(isSeen);
    this.ownership(isSeen);
    if (zoom >= TEXT_ZOOM) this.thin();
    this.blocking();
    for (const shown of this.shown.values()) if (shown.isSeen) this.card(shown, began);
    this.scrollbar();
    if (began < this.until) this.draw();
    frameTimes.push(performance.now() - began);
    if (frameTimes.length > MOST_TIMES) frameTimes.shift();
  }

  headers(isSeen) {
    const { context: c, colour, forest } = this;
    for (const { namespace, y } of forest.sections) {
      if (!isSeen(0, y, forest.width, 34)) continue;
      const label = namespace || 'Cluster';
      const width = this.measure(label, 'header');
      c.font = this.fonts.header;
      c.fillStyle = colour('text');
      c.fillText(label, 20, y + 16);
      c.fillStyle = colour('line');
      c.fillRect(32 + width, y + 16, Math.max(forest.width, (this.x + this.width) / this.zoom) - 52 - width, 1);
    }
  }

  ownership(isSeen) {
    const { context: c, colour, forest } = this;
    c.strokeStyle = colour('strong');
    c.lineWidth = 1;
    c.beginPath();
    for (const { item, at } of this.shown.values()) {
      if (item.children.length === 0) continue;
      const last = this.shown.get(item.children.at(-1).node.uid).at;
      if (!isSeen(at.x, at.y - 40, Math.max(item.w, last.x - at.x) + 20, Math.max(item.h, last.y - at.y) + 80)) continue;
      const [x, y, trunk] = forest.isNarrow
        ? [at.x + 9, at.y + item.h, at.x + 9]
        : [at.x + item.w, at.y + 12, at.x + item.w + 10];
      for (const child of item.children) {
        const to = this.shown.get(child.node.uid).at;
        // Children in further columns stand beside one that has a line.
        if (to.x - x < 60) elbow(c, x, y, trunk, to.x, to.y + 12);
      }
    }
    c.stroke();
  }

  /// Claims, volumes and selectors: faint, but for those of the selected object.
  thin() {
    const { context: c, colour } = this;
    const focus = this.hovered ?? this.selected;
    for (const shown of this.shown.values()) {
      for (const { to } of shown.item.node.edges ?? []) {
        const other = this.shown.get(to);
        if (!other || other.item.parent === shown.item) continue;
        const isStrong = focus === to || focus === shown.item.node.uid;
        if (!isStrong && !shown.isSeen && !other.isSeen) continue;
        c.strokeStyle = colour(isStrong ? 'accent' : 'strong');
        c.globalAlpha = isStrong ? 1 : 0.55;
        c.lineWidth = isStrong ? 1.5 : 1;
        c.setLineDash(isStrong ? [] : [1, 3]);
        curve(c, shown, other);
      }
    }
    c.setLineDash([]);
    c.globalAlpha = 1;
  }

  /// Dashed edges to the objects that others wait for.
  blocking() {
    const { context: c, colour } = this;
    c.strokeStyle = colour('failing');
    c.fillStyle = colour('failing');
    c.lineWidth = 1.5;
    for (const shown of this.shown.values()) {
      const { node } = shown.item;
      for (const uid of node.blockedBy ?? []) {
        const other = this.shown.get(uid);
        // That an owner waits for what it owns is seen by the states.
        if (!other || other === shown || node.state !== 'terminating' && isBelow(other.item, shown.item)) continue;
        c.setLineDash([5, 4]);
        const end = curve(c, shown, other);
        c.setLineDash([]);
        c.beginPath();
        c.moveTo(end.x, end.y);
        c.lineTo(end.x + 7 * end.side, end.y - 4);
        c.lineTo(end.x + 7 * end.side, end.y + 4);
        c.fill();
      }
    }
  }

  card({ item, at, since, flash, isNew }, now) {
    const { context: c, colour, zoom, selected, hovered } = this;
    const { node, w, h } = item;
    const isReady = node.state === 'ready';
    const own = colour(node.state);
    const alpha = (item.isMatch ? 1 : 0.5) * (isNew && !calm.matches ? Math.min(1, (now - since) / DURATION) : 1);
    const text = (text, font, colour, x, y) => {
      c.font = this.fonts[font];
      c.fillStyle = colour;
      c.fillText(text, x, y);
    };
    c.globalAlpha = alpha;
    c.beginPath();
    c.roundRect(at.x + 0.5, at.y + 0.5, w - 1, h - 1, 6);
    if (zoom < TEXT_ZOOM) {
      c.fillStyle = own;
      c.globalAlpha = isReady ? alpha * 0.55 : alpha;
      c.fill();
      c.globalAlpha = 1;
      if (selected === node.uid) this.ring(at, item, colour('accent'), 6);
      return;
    }
    c.fillStyle = colour('card');
    c.fill();
    if (!isReady) {
      c.fillStyle = own;
      c.globalAlpha = alpha / 10;
      c.fill();
      c.globalAlpha = alpha;
    }
    c.strokeStyle = isReady ? colour('line') : own;
    c.lineWidth = 1;
    c.setLineDash(node.state === 'terminating' ? [3, 2] : []);
    c.stroke();
    c.setLineDash([]);
    const glow = flash && !calm.matches ? 1 - (now - flash) / FLASH : 0;
    if (glow > 0) {
      c.globalAlpha = glow * 0.7;
      this.ring(at, item, colour('accent'), 1.5);
      c.globalAlpha = alpha;
    }
    if (selected === node.uid) this.ring(at, item, colour('accent'), 2);
    else if (hovered === node.uid) this.ring(at, item, colour('muted'), 1);
    const [x, y] = [at.x + 26, at.y + 12.5];
    icon(c, `state-${node.state}`, at.x + 14, y, own);
    const kind = this.fitted(abbreviation(node.kind), 'small', 70);
    text(kind, 'small', colour('muted'), x, y);
    const start = x + this.measure(kind, 'small') + 6;
    const isLocked = node.finalizers?.length > 0;
    text(this.fitted(node.name, 'name', at.x + w - (isLocked ? 22 : 8) - start), 'name', colour('text'), start, y);
    if (isLocked) icon(c, 'lock', at.x + w - 14, y, colour(node.state === 'terminating' ? 'failing' : 'muted'));
    if (node.reason) text(this.fitted(node.reason, 'small', w - 34), 'small', isReady ? colour('muted') : own, x, at.y + 27.5);
    c.globalAlpha = 1;
  }

  ring(at, item, colour, width) {
    const { context: c } = this;
    c.beginPath();
    c.roundRect(at.x - 1.5, at.y - 1.5, item.w + 3, item.h + 3, 7.5);
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.stroke();
  }

  scrollbar() {
    const { context: c, colour, forest } = this;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = colour('strong');
    const bar = (whole, part, at, box) => {
      if (whole <= part + 1) return;
      const length = Math.max(24, part * part / whole);
      c.beginPath();
      c.roundRect(...box((at / (whole - part)) * (part - length - 4) + 2, length), 2);
      c.fill();
    };
    bar(forest.height * this.zoom, this.height, this.y, (at, length) => [this.width - 7, at, 4, length]);
    bar(forest.width * this.zoom, this.width, this.x, (at, length) => [at, this.height - 7, length, 4]);
  }

  measure(text, font) {
    this.context.font = this.fonts[font];
    return this.remember(`${font} ${text}`, () => this.context.measureText(text).width);
  }

  /// A text with its middle left out, if it does not fit: names differ at their ends.
  fitted(text, font, width) {
    return this.remember(`${font} ${Math.round(width)} ${text}`, () => {
      if (this.measure(text, font) <= width) return text;
      const tail = font === 'name' ? Math.min(8, text.length >> 1) : 0;
      const cut = length => `${text.slice(0, length)}…${text.slice(text.length - tail)}`;
      let [low, high] = [0, text.length - tail];
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (this.context.measureText(cut(middle)).width <= width) low = middle;
        else high = middle - 1;
      }
      return cut(low);
    });
  }

  remember(key, make) {
    if (this.texts.size > MOST_TEXTS) this.texts.clear();
    if (!this.texts.has(key)) this.texts.set(key, make());
    return this.texts.get(key);
  }
}

function position({ x, y, item, since }, now) {
  const part = Math.min(1, Math.max(0, (now - since) / DURATION));
  if (part === 1) return { x: item.x, y: item.y };
  const eased = 1 - (1 - part) ** 3;
  return { x: x + (item.x - x) * eased, y: y + (item.y - y) * eased };
}

/// A line from a point, down a trunk, to a branch.
function elbow(c, fromX, fromY, trunk, toX, toY) {
  const radius = Math.min(5, Math.abs(toY - fromY));
  c.moveTo(fromX, fromY);
  c.lineTo(trunk, fromY);
  c.lineTo(trunk, toY - radius);
  c.quadraticCurveTo(trunk, toY, trunk + radius, toY);
  c.lineTo(toX, toY);
}

/// A curve between two cards, from the sides that face each other. Returns its end.
function curve(c, from, to) {
  const [a, b] = [from.at, to.at];
  const isRight = b.x >= a.x + from.item.w;
  const isLeft = b.x + to.item.w <= a.x;
  const side = isRight ? -1 : 1;
  const start = { x: isLeft ? a.x : a.x + from.item.w, y: a.y + from.item.h / 2 };
  const end = { x: isRight ? b.x : b.x + to.item.w, y: b.y + to.item.h / 2, side };
  const [dx, dy] = [Math.abs(end.x - start.x), Math.abs(end.y - start.y)];
  const out = Math.min(120, Math.max(18, isRight || isLeft ? dx / 2 : dy / 6));
  c.beginPath();
  c.moveTo(start.x, start.y);
  c.bezierCurveTo(start.x + (isLeft ? -out : out), start.y, end.x + side * out, end.y, end.x + side * 6, end.y);
  c.stroke();
  return end;
}

/// Fills a shape of the page's icons, which are 12 units wide, around a point.
function icon(c, id, x, y, colour) {
  shapes[id] ??= new Path2D(document.querySelector(`#${id} path`)?.getAttribute('d') ?? '');
  c.save();
  c.translate(x - 6, y - 6);
  c.fillStyle = colour;
  c.fill(shapes[id], 'evenodd');
  c.restore();
}
