// The ownership forest: which object is below which, and where each is drawn.

export const CARD = 204;
const GAP = 20;
const ROW = 30;
const TALL = 44;
const MARGIN = 20;
const HEADER = 34;
const INDENT = 18;
const DEEPEST = 32;
// Dependents without dependents of their own stand in columns of so many.
const LEAVES = 8;
const LEAF_COLUMNS = 4;

const collator = new Intl.Collator('en', { numeric: true });
const ORDER = ['Deployment', 'StatefulSet', 'DaemonSet', 'CronJob', 'Job', 'ReplicaSet', 'Pod', 'Ingress', 'Service',
  'PersistentVolumeClaim', 'PersistentVolume', 'ConfigMap', 'Secret', 'ServiceAccount', 'Namespace', 'Node'];
const order = kind => (ORDER.indexOf(kind) + 1 || ORDER.length + 1);
const byKindAndName = (a, b) =>
  order(a.node.kind) - order(b.node.kind) || collator.compare(a.node.kind, b.node.kind) || collator.compare(a.node.name, b.node.name);

/// Whether a node is shown by a filter, and whether it is what the filter looks for.
export function matcher({ text, namespace, kind, states, background }) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean).slice(0, 10);
  return node => {
    if (node.isBackground && !background) return false;
    if (namespace !== '' && (node.namespace ?? '') !== (namespace === '-' ? '' : namespace)) return false;
    if (kind !== '' && node.kind !== kind) return false;
    if (states.size > 0 && !states.has(node.state)) return false;
    if (words.length === 0) return true;
    const all = `${node.kind} ${node.namespace ?? ''}/${node.name} ${node.reason ?? ''} ${node.state} ${node.resource}`.toLowerCase();
    return words.every(word => all.includes(word));
  };
}

/// Makes the forest of the nodes that a filter shows. Their owners are in it too.
///
/// Circles of owners are cut at their smallest uid, and chains below a depth of 32.
export function grow(nodes, matches) {
  const items = new Map();
  const add = node => {
    if (!items.has(node.uid)) items.set(node.uid, { node, children: [], parent: null, isMatch: false, x: 0, y: 0, w: CARD, h: 0 });
    return items.get(node.uid);
  };
  const ownerOf = node => node.owners?.map(uid => nodes.get(uid)).find(Boolean);
  for (const node of nodes.values()) {
    if (!matches(node)) continue;
    add(node).isMatch = true;
    let at = node;
    for (let steps = 0; steps < DEEPEST && at; steps++) {
      at = ownerOf(at);
      if (!at || items.has(at.uid)) break;
      add(at);
    }
  }
  for (const item of items.values()) {
    const owner = ownerOf(item.node);
    if (owner && owner.uid !== item.node.uid) item.parent = items.get(owner.uid) ?? null;
  }
  for (const item of items.values()) cut(item);
  for (const item of items.values()) item.parent?.children.push(item);
  const namespaces = new Map();
  for (const item of items.values()) {
    item.children.sort(byKindAndName);
    if (item.parent) continue;
    const namespace = item.node.namespace ?? '';
    if (!namespaces.has(namespace)) namespaces.set(namespace, []);
    namespaces.get(namespace).push(item);
  }
  const sections = [...namespaces].map(([namespace, roots]) => ({ namespace, roots: roots.sort(byKindAndName) }));
  sections.sort((a, b) => (a.namespace === '') - (b.namespace === '') || collator.compare(a.namespace, b.namespace));
  return { items, sections, sequence: sequence(sections) };
}

function cut(item) {
  const seen = new Set();
  let at = item;
  for (let steps = 0; at && !seen.has(at); steps++) {
    if (steps >= DEEPEST) {
      item.parent = null;
      return;
    }
    seen.add(at);
    at = at.parent;
  }
  if (!at) return;
  // `at` is in a circle.
  let smallest = at;
  for (let next = at.parent; next !== at; next = next.parent) {
    if (next.node.uid < smallest.node.uid) smallest = next;
  }
  smallest.parent = null;
}

/// All items from the top down, owners before their dependents.
function sequence(sections) {
  const all = [];
  const walk = (item, depth, siblings) => {
    item.depth = depth;
    item.siblings = siblings;
    item.index = all.push(item) - 1;
    for (const child of item.children) walk(child, depth + 1, item.children);
  };
  for (const { roots } of sections) for (const root of roots) walk(root, 0, roots);
  return all;
}

/// Places all items for a width. Narrow ones have dependents below their owners.
export function place(forest, width) {
  const columns = Math.max(1, Math.floor((width - 2 * MARGIN + GAP) / (CARD + GAP)));
  const isNarrow = columns < 3;
  let y = 12;
  let right = 0;
  for (const section of forest.sections) {
    section.y = y;
    y += HEADER;
    const trees = section.roots.filter(root => root.children.length > 0);
    const singles = section.roots.filter(root => root.children.length === 0);
    const skyline = new Array(columns).fill(y);
    for (const tree of trees) {
      if (isNarrow) {
        y = indent(tree, MARGIN, y, Math.min(width - 2 * MARGIN, 420)) + 8;
        continue;
      }
      const size = tidy(tree);
      const span = Math.min(columns, size.columns);
      let best = 0;
      let top = Infinity;
      for (let column = 0; column + span <= columns; column++) {
        const at = Math.max(...skyline.slice(column, column + span));
        if (at < top) [top, best] = [at, column];
      }
      move(tree, MARGIN + best * (CARD + GAP), top);
      skyline.fill(top + size.height + 14, best, best + span);
    }
    if (!isNarrow) y = Math.max(y, ...skyline);
    y = grid(singles, columns, y, columns === 1 ? width - 2 * MARGIN : CARD);
    y += 14;
  }
  for (const item of forest.items.values()) right = Math.max(right, item.x + item.w);
  forest.width = right + MARGIN;
  forest.height = y;
  forest.isNarrow = isNarrow;
}

const height = item => (item.node.reason ? TALL : ROW);

function size(item, w) {
  item.w = w;
  item.h = height(item) - 6;
}

/// Places a tree at the origin: dependents to the right of their owner, the first one in its row.
function tidy(root) {
  let columns = 1;
  const lay = (item, column, top) => {
    size(item, CARD);
    item.x = column * (CARD + GAP);
    item.y = top;
    columns = Math.max(columns, column + 1);
    if (item.children.length === 0) return height(item);
    let used = 0;
    const isLeafy = item.children.length > LEAVES && item.children.every(child => child.children.length === 0);
    if (isLeafy) {
      const across = Math.min(LEAF_COLUMNS, Math.ceil(item.children.length / LEAVES));
      const down = Math.ceil(item.children.length / across);
      const row = Math.max(...item.children.map(height));
      item.children.forEach((child, index) => {
        size(child, CARD);
        child.x = (column + 1 + Math.floor(index / down)) * (CARD + GAP);
        child.y = top + (index % down) * row;
      });
      columns = Math.max(columns, column + 1 + across);
      used = down * row;
    } else {
      for (const child of item.children) used += lay(child, column + 1, top + used);
    }
    return Math.max(height(item), used);
  };
  const tall = lay(root, 0, 0);
  return { columns, height: tall };
}

function move(item, x, y) {
  item.x += x;
  item.y += y;
  for (const child of item.children) move(child, x, y);
}

function indent(item, x, y, width, depth = 0) {
  const inset = Math.min(depth, 6) * INDENT;
  size(item, width - inset);
  item.x = x + inset;
  item.y = y;
  y += height(item);
  for (const child of item.children) y = indent(child, x, y, width, depth + 1);
  return y;
}

/// Places items in columns of equal heights, from the top down.
function grid(items, columns, y, width) {
  const down = Math.ceil(items.length / columns);
  const tops = new Array(columns).fill(y);
  items.forEach((item, index) => {
    const column = Math.floor(index / down);
    size(item, width);
    item.x = MARGIN + column * (CARD + GAP);
    item.y = tops[column];
    tops[column] += height(item);
  });
  return Math.max(y, ...tops);
}

/// Whether an item is below another one.
export function isBelow(item, other) {
  for (let at = item?.parent; at; at = at.parent) if (at === other) return true;
  return false;
}
