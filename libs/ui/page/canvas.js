// The picture: draws the part of the forest that is seen.

import { abbreviation } from './dom.js';
import { isBelow } from './forest.js';

const LEAST_ZOOM = 0.12;
const MOST_ZOOM = 2;
const DURATION = 200;
const FLASH = 1200;
const MOST_TIMES = 1000;
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
    this.isDue = false;
    this.readColours();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { this.readColours(); this.draw(); });
    new ResizeObserver(() => this.resize()).observe(area);
    this.listen();
    this.resize();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const names = ['canvas', 'card', 'line', 'strong', 'text', 'muted', 'accent', 'ready', 'progressing', 'terminating', 'failing'];
    this.colours = Object.fromEntries(names.map(name => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.colours.missing = this.colours.muted;
    const family = getComputedStyle(document.body).fontFamily;
    this.fonts = { name: `500 12px ${family}`, kind: `11px ${family}`, reason: `11px ${family}`, header: `600 13px ${family}` };
    this.texts.clear();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.area;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    this.width = width;
    this.height = height;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.ratio = ratio;
    this.resized?.(width);
    this.clamp();
    this.paint();
  }

  /// Shows a forest. Items that were elsewhere move to their places.
  show(forest) {
    const now = performance.now();
    const shown = new Map();
    for (const [uid, item] of forest.items) {
      const old = this.shown.get(uid);
      if (old) {
        const at = position(old, now);
        const isMoved = at.x !== item.x || at.y !== item.y;
        const isChanged = old.item.node.resourceVersion !== item.node.resourceVersion || old.item.node.state !== item.node.state;
        shown.set(uid, { item, x: at.x, y: at.y, since: isMoved ? now : old.since, flash: isChanged ? now : old.flash, isNew: false });
      } else shown.set(uid, { item, x: item.x, y: item.y, since: now, flash: this.forest ? now : 0, isNew: Boolean(this.forest) });
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
    if (!this.forest) return;
    const whole = Math.min(this.width / this.forest.width, this.height / this.forest.height);
    this.zoom = this.zoom === 1 ? Math.max(LEAST_ZOOM, Math.min(1, whole)) : 1;
    this.clamp();
    this.draw();
  }

  /// Scrolls until an item is seen.
  reveal(uid) {
    const item = this.forest?.items.get(uid);
    if (!item) return;
    const z = this.zoom;
    const edge = 24;
    this.x = Math.min(Math.max(this.x, (item.x + item.w) * z - this.width + edge), item.x * z - edge);
    this.y = Math.min(Math.max(this.y, (item.y + item.h) * z - this.height + edge), item.y * z - edge);
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
    area.addEventListener('wheel', event => {
      event.preventDefault();
      const unit = event.deltaMode === 1 ? 16 : 1;
      const box = area.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) this.zoomBy(Math.exp(-event.deltaY * unit * 0.01), event.clientX - box.left, event.clientY - box.top);
      else if (event.shiftKey) this.scrollBy(event.deltaY * unit, 0);
      else this.scrollBy(event.deltaX * unit, event.deltaY * unit);
    }, { passive: false });
    area.addEventListener('pointerdown', event => {
      if (event.button !== 0) return;
      pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      this.travelled = 0;
    });
    area.addEventListener('pointermove', event => {
      const before = pointers.get(event.pointerId);
      const box = area.getBoundingClientRect();
      if (!before) {
        this.hover(this.itemAt(event.clientX - box.left, event.clientY - box.top));
        return;
      }
      const [dx, dy] = [event.clientX - before.x, event.clientY - before.y];
      this.travelled += Math.abs(dx) + Math.abs(dy);
      if (this.travelled > 4 && !area.hasPointerCapture(event.pointerId)) area.setPointerCapture(event.pointerId);
      if (pointers.size === 2) {
        const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
        const distance = point => Math.hypot(point.x - other.x, point.y - other.y) || 1;
        const now = { x: event.clientX, y: event.clientY };
        this.zoomBy(distance(now) / distance(before), (now.x + other.x) / 2 - box.left, (now.y + other.y) / 2 - box.top);
      }
      if (this.travelled > 4) this.scrollBy(-dx / pointers.size, -dy / pointers.size);
      pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    });
    const end = event => {
      if (!pointers.delete(event.pointerId) || event.type !== 'pointerup' || this.travelled > 4) return;
      const box = area.getBoundingClientRect();
      this.picked(this.itemAt(event.clientX - box.left, event.clientY - box.top)?.node.uid ?? null, true);
    };
    area.addEventListener('pointerup', end);
    area.addEventListener('pointercancel', end);
    area.addEventListener('pointerleave', () => this.hover(null));
  }

  hover(item) {
    if (this.hovered === (item?.node.uid ?? null)) return;
    this.hovered = item?.node.uid ?? null;
    this.area.classList.toggle('pointing', Boolean(item));
    this.draw();
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
    if (!this.forest) return;
    const began = performance.now();
    const { context: c, zoom, colours } = this;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = colours.canvas;
    c.fillRect(0, 0, this.width, this.height);
    c.setTransform(this.ratio * zoom, 0, 0, this.ratio * zoom, -this.x * this.ratio, -this.y * this.ratio);
    c.textBaseline = 'middle';
    const view = { left: this.x / zoom, top: this.y / zoom, right: (this.x + this.width) / zoom, bottom: (this.y + this.height) / zoom };
    const isSeen = (x, y, w, h) => x < view.right && x + w > view.left && y < view.bottom && y + h > view.top;
    let isMoving = began < this.until;
    const seen = [];
    for (const shown of this.shown.values()) {
      Object.assign(shown, { at: calm.matches ? { x: shown.item.x, y: shown.item.y } : position(shown, began) });
      if (isSeen(shown.at.x, shown.at.y, shown.item.w, shown.item.h)) seen.push(shown);
    }
    this.headers(isSeen);
    this.ownership(isSeen);
    if (zoom > 0.3) this.thin(seen);
    for (const shown of seen) this.card(shown, began);
    this.blocking();
    this.scrollbar();
    if (isMoving) this.draw();
    frameTimes.push(performance.now() - began);
    if (frameTimes.length > MOST_TIMES) frameTimes.shift();
  }

  headers(isSeen) {
    const { context: c, colours, forest } = this;
    for (const section of forest.sections) {
      if (!isSeen(0, section.y, forest.width, 34)) continue;
      c.font = this.fonts.header;
      c.fillStyle = colours.text;
      const label = section.namespace || 'Cluster';
      c.fillText(label, 20, section.y + 16);
      const width = c.measureText(label).width;
      c.fillStyle = colours.line;
      c.fillRect(32 + width, section.y + 16, Math.max(0, forest.width - 52 - width), 1);
    }
  }

  ownership(isSeen) {
    const { context: c, forest } = this;
    c.strokeStyle = this.colours.strong;
    c.lineWidth = 1;
    c.beginPath();
    for (const { item, at } of this.shown.values()) {
      if (item.children.length === 0) continue;
      const last = this.shown.get(item.children.at(-1).node.uid).at;
      if (!isSeen(at.x, at.y - 40, Math.max(item.w, last.x - at.x) + 20, Math.max(item.h, last.y - at.y) + 80)) continue;
      if (forest.isNarrow) {
        for (const child of item.children) {
          const to = this.shown.get(child.node.uid).at;
          elbow(c, at.x + 9, at.y + item.h, to.x, to.y + child.h / 2);
        }
        continue;
      }
      const x = at.x + item.w;
      const y = at.y + item.h / 2;
      for (const child of item.children) {
        const to = this.shown.get(child.node.uid).at;
        // Those in further columns stand beside one that has a line.
        if (to.x - x > 60) continue;
        const middle = x + (to.x - x) / 2;
        c.moveTo(x, y);
        elbow(c, middle, y, to.x, to.y + child.h / 2);
      }
    }
    c.stroke();
  }

  /// Claims, volumes and selectors: faint, but for those of the selected object.
  thin(seen) {
    const { context: c, colours } = this;
    const focus = this.hovered ?? this.selected;
    for (const shown of this.shown.values()) {
      for (const { to } of shown.item.node.edges ?? []) {
        const other = this.shown.get(to);
        if (!other || isBelow(other.item, shown.item) && other.item.parent === shown.item) continue;
        const isStrong = focus === to || focus === shown.item.node.uid;
        if (!isStrong && (seen.length > 400 || !seen.includes(shown) && !seen.includes(other))) continue;
        c.strokeStyle = isStrong ? colours.accent : colours.strong;
        c.globalAlpha = isStrong ? 1 : 0.55;
        c.lineWidth = isStrong ? 1.5 : 1;
        c.setLineDash(isStrong ? [] : [1, 3]);
        curve(c, shown, other);
      }
    }
    c.setLineDash([]);
    c.globalAlpha = 1;
  }

  /// The objects that others wait for: dashed, with an arrow at what is waited for.
  blocking() {
    const { context: c, colours } = this;
    c.strokeStyle = colours.failing;
    c.fillStyle = colours.failing;
    c.lineWidth = 1.5;
    for (const shown of this.shown.values()) {
      const { item } = shown;
      for (const uid of item.node.blockedBy ?? []) {
        const other = this.shown.get(uid);
        if (!other || other === shown || item.node.state !== 'terminating' && isBelow(other.item, item)) continue;
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

  card(shown, now) {
    const { context: c, colours, zoom } = this;
    const { item, at } = shown;
    const { node } = item;
    const colour = colours[node.state] ?? colours.muted;
    const isSelected = this.selected === node.uid;
    const part = calm.matches ? 1 : Math.min(1, (now - shown.since) / DURATION);
    c.globalAlpha = (item.isMatch ? 1 : 0.5) * (shown.isNew ? part : 1);
    if (zoom < 0.45) {
      c.fillStyle = colour;
      c.globalAlpha *= node.state === 'ready' ? 0.55 : 1;
      c.fillRect(at.x, at.y, item.w, item.h);
      c.globalAlpha = 1;
      if (isSelected) this.ring(at, item, colours.accent, 6);
      return;
    }
    c.beginPath();
    c.roundRect(at.x + 0.5, at.y + 0.5, item.w - 1, item.h - 1, 6);
    c.fillStyle = colours.card;
    c.fill();
    if (node.state !== 'ready') {
      c.fillStyle = colour;
      c.globalAlpha *= 0.1;
      c.fill();
      c.globalAlpha = item.isMatch ? 1 : 0.5;
    }
    c.strokeStyle = node.state === 'ready' ? colours.line : colour;
    c.lineWidth = 1;
    if (node.state === 'terminating') c.setLineDash([3, 2]);
    c.stroke();
    c.setLineDash([]);
    const flash = calm.matches ? 0 : Math.max(0, 1 - (now - shown.flash) / FLASH);
    if (flash > 0 && shown.flash) {
      c.globalAlpha = flash * 0.7;
      this.ring(at, item, colours.accent, 1.5);
    }
    c.globalAlpha = item.isMatch ? 1 : 0.5;
    if (isSelected) this.ring(at, item, colours.accent, 2);
    else if (this.hovered === node.uid) this.ring(at, item, colours.muted, 1);
    const y = at.y + 12.5;
    stateShape(c, node.state, at.x + 14, y, colour);
    c.font = this.fonts.kind;
    c.fillStyle = colours.muted;
    const kind = abbreviation(node.kind);
    c.fillText(kind, at.x + 26, y);
    const start = at.x + 26 + this.measure(kind, 'kind') + 6;
    const isLocked = node.finalizers?.length > 0;
    const end = at.x + item.w - (isLocked ? 22 : 8);
    c.font = this.fonts.name;
    c.fillStyle = colours.text;
    c.fillText(this.fitted(node.name, 'name', end - start), start, y);
    if (isLocked) lock(c, at.x + item.w - 14, y, node.state === 'terminating' ? colours.failing : colours.muted);
    if (node.reason) {
      c.font = this.fonts.reason;
      c.fillStyle = node.state === 'ready' ? colours.muted : colour;
      c.fillText(this.fitted(node.reason, 'reason', item.w - 34), at.x + 26, at.y + 27.5);
    }
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
    const { context: c, forest } = this;
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = this.colours.strong;
    const bar = (whole, part, at, draw) => {
      if (whole <= part + 1) return;
      const length = Math.max(24, part * part / whole);
      draw(at / (whole - part) * (part - length - 4) + 2, length);
    };
    bar(forest.height * this.zoom, this.height, this.y, (at, length) => {
      c.beginPath();
      c.roundRect(this.width - 7, at, 4, length, 2);
      c.fill();
    });
    bar(forest.width * this.zoom, this.width, this.x, (at, length) => {
      c.beginPath();
      c.roundRect(at, this.height - 7, length, 4, 2);
      c.fill();
    });
  }

  measure(text, font) {
    const key = `${font} ${text}`;
    let width = this.texts.get(key);
    if (width === undefined) {
      if (this.texts.size > 20000) this.texts.clear();
      this.context.font = this.fonts[font];
      width = this.context.measureText(text).width;
      this.texts.set(key, width);
    }
    return width;
  }

  /// A text with its middle left out, if it does not fit: names differ at their ends.
  fitted(text, font, width) {
    const key = `${font} ${Math.round(width)} ${text}`;
    let fitted = this.texts.get(key);
    if (fitted === undefined) {
      fitted = text;
      if (this.measure(text, font) > width) {
        const tail = font === 'name' ? Math.min(8, text.length >> 1) : 0;
        const cut = length => `${text.slice(0, length)}…${text.slice(text.length - tail)}`;
        let [low, high] = [0, text.length - tail];
        while (low < high) {
          const middle = (low + high + 1) >> 1;
          if (this.context.measureText(cut(middle)).width <= width) low = middle;
          else high = middle - 1;
        }
        fitted = cut(low);
      }
      this.texts.set(key, fitted);
    }
    return fitted;
  }
}

function position({ x, y, item, since }, now) {
  const part = Math.min(1, Math.max(0, (now - since) / DURATION));
  if (part === 1) return { x: item.x, y: item.y };
  const eased = 1 - (1 - part) ** 3;
  return { x: x + (item.x - x) * eased, y: y + (item.y - y) * eased };
}

/// A line from a trunk at x to a branch.
function elbow(c, x, y, toX, toY) {
  if (Math.abs(toY - y) < 1) {
    c.moveTo(x - 10, y);
    c.lineTo(toX, toY);
    return;
  }
  const radius = Math.min(5, Math.abs(toY - y));
  c.lineTo(x, y);
  c.moveTo(x, y);
  c.lineTo(x, toY - radius);
  c.quadraticCurveTo(x, toY, x + radius, toY);
  c.lineTo(toX, toY);
}

/// A curve between two cards, from the sides that face each other. Returns its end.
function curve(c, from, to) {
  const [a, b] = [from.at, to.at];
  const isRight = b.x >= a.x + from.item.w;
  const isLeft = b.x + to.item.w <= a.x;
  const startX = isRight ? a.x + from.item.w : isLeft ? a.x : a.x + from.item.w;
  const endX = isRight ? b.x : isLeft ? b.x + to.item.w : b.x + to.item.w;
  const [startY, endY] = [a.y + from.item.h / 2, b.y + to.item.h / 2];
  const side = isRight ? -1 : 1;
  const out = Math.min(120, Math.max(18, Math.abs(endX - startX) / 2, isRight || isLeft ? 0 : Math.abs(endY - startY) / 6));
  c.beginPath();
  c.moveTo(startX, startY);
  c.bezierCurveTo(startX + (isLeft ? -out : out), startY, endX + side * out, endY, endX + side * 6, endY);
  c.stroke();
  return { x: endX, y: endY, side };
}

function stateShape(c, state, x, y, colour) {
  c.fillStyle = colour;
  c.strokeStyle = colour;
  c.lineWidth = 1.5;
  c.beginPath();
  if (state === 'failing') {
    c.moveTo(x, y - 5.5);
    c.lineTo(x + 5.5, y + 4.5);
    c.lineTo(x - 5.5, y + 4.5);
    c.closePath();
    c.fill();
  } else if (state === 'terminating') {
    c.moveTo(x - 4, y - 5);
    c.lineTo(x + 4, y - 5);
    c.lineTo(x - 4, y + 5);
    c.lineTo(x + 4, y + 5);
    c.closePath();
    c.fill();
  } else if (state === 'progressing') {
    c.arc(x, y, 4, 0, 2 * Math.PI);
    c.stroke();
    c.beginPath();
    c.arc(x, y, 4, -Math.PI / 2, Math.PI / 2);
    c.fill();
  } else {
    c.arc(x, y, 4, 0, 2 * Math.PI);
    c.fill();
  }
}

function lock(c, x, y, colour) {
  c.strokeStyle = colour;
  c.fillStyle = colour;
  c.lineWidth = 1.3;
  c.beginPath();
  c.roundRect(x - 4, y - 1, 8, 6, 1.2);
  c.fill();
  c.beginPath();
  c.arc(x, y - 1.5, 2.4, Math.PI, 0);
  c.stroke();
}
