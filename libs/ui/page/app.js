// The page: the moment that is shown, the filter, the selection, and the keys.

import { Canvas, frameTimes } from './canvas.js';
import { Live, read } from './data.js';
import { byId, element, stateName } from './dom.js';
import { grow, matcher, place } from './forest.js';
import { List } from './list.js';
import { Panel } from './panel.js';
import { Timeline } from './timeline.js';

const DEBOUNCE = 60;
const EVENTS_INTERVAL = 2000;
const filter = { text: '', namespace: '', kind: '', states: new Set(), background: false };
// The nodes on display: the live ones, or those of a revision.
const shown = { nodes: new Map(), at: null, now: '', isTruncated: false };
let forest = null;
let selected = null;
let isList = false;
/// For tests.
const measured = { frameTimes, firstPicture: 0, revision: () => live.revision, nodes: () => forest?.items.size ?? 0, itemBox };
window.coracle = measured;

const canvas = new Canvas(byId('canvas'), byId('forest'), (uid, opens) => select(uid, opens));
const list = new List(uid => select(uid, true));
const panel = new Panel({ pick: uid => select(uid, true), show: at => timeline.show(at), close: closePanel });
const timeline = new Timeline({ canvas: byId('marks'), slider: byId('slider'), moment: byId('moment'), moved: goTo, isHidden });
const live = new Live({ changed: liveChanged, connected });
canvas.resized = () => { if (forest) render(); };

// The picture.

let renderTimer = 0;
let renderCost = 0;
function schedule() {
  if (renderTimer) return;
  renderTimer = setTimeout(() => {
    renderTimer = 0;
    render();
  }, Math.min(400, renderCost * 2));
}

function render() {
  const began = performance.now();
  const matches = matcher(filter);
  forest = grow(shown.nodes, matches);
  place(forest, Math.max(320, document.documentElement.clientWidth));
  canvas.selected = selected;
  canvas.show(forest);
  if (isList) list.show(forest, shown.now, selected);
  describeItem();
  fillFilters();
  byId('empty').hidden = forest.items.size > 0;
  byId('empty').textContent = filter.text || filter.namespace || filter.kind || filter.states.size ? 'No object matches the filter.' : 'No objects but those of the control plane. Create one, and it appears here.';
  if (!panel.area.hidden) openPanel();
  renderCost = performance.now() - began;
  if (!measured.firstPicture && shown.nodes.size) measured.firstPicture = performance.now();
}

function itemBox(uid) {
  const item = forest?.items.get(uid);
  if (!item) return null;
  const { left, top } = byId('forest').getBoundingClientRect();
  const { x, y, zoom } = canvas;
  return { x: left + item.x * zoom - x, y: top + item.y * zoom - y, width: item.w * zoom, height: item.h * zoom };
}

// Time.

function isHidden(uid) { return !filter.background && live.nodes.get(uid)?.isBackground; }

function liveChanged(changed, gone) {
  if (changed === null) {
    timeline.clear();
    readHistory();
  } else {
    const { revision, now } = live;
    const write = (node, verb) => ({ ...node, revision: verb === 'delete' ? revision : node.resourceVersion, time: now, verb, isDeletion: verb === 'delete' });
    const isNew = node => Date.parse(now) - Date.parse(node.created) < 1500 && !timeline.all.some(({ uid }) => uid === node.uid);
    timeline.add([...changed.map(node => write(node, isNew(node) ? 'create' : 'update')), ...gone.map(node => write(node, 'delete'))]);
  }
  timeline.setRange(live.oldest, live.revision);
  if (shown.at === null) showLive();
  readEventsSoon();
}

function showLive() {
  const { nodes, now, isTruncated } = live;
  const isOther = shown.isTruncated !== isTruncated;
  Object.assign(shown, { nodes: new Map(nodes), now, isTruncated });
  // Other messages stay.
  if (isOther) noticeTruncation();
  if (measured.firstPicture) schedule();
  else render();
}

async function readHistory() {
  try {
    const { entries, oldest } = await read('log', { limit: 1000 });
    timeline.add(entries.reverse().filter(({ resource }) => !/^(events|endpoint)/.test(resource)));
    if (oldest) live.oldest = String(Math.max(Number(oldest), Number(live.oldest)));
    timeline.setRange(live.oldest, live.revision);
  } catch { /* The timeline has what the page sees. */ }
}

let eventsTimer = 0;
function readEventsSoon() {
  if (eventsTimer || shown.at !== null) return;
  eventsTimer = setTimeout(async () => {
    try {
      timeline.setEvents((await read('events')).events);
    } catch { /* The next change reads them again. */ }
    eventsTimer = 0;
  }, timeline.events.length ? EVENTS_INTERVAL : 300);
}

let past = null;
let pastTimer = 0;
function goTo(at) {
  past?.abort();
  clearTimeout(pastTimer);
  byId('live').setAttribute('aria-pressed', String(at === null));
  document.body.classList.toggle('past', at !== null);
  shown.at = at;
  if (at === null) {
    showLive();
    noticeTruncation();
    return;
  }
  pastTimer = setTimeout(async () => {
    past = new AbortController();
    try {
      const { objects, now, isTruncated } = await read('picture', { at }, past.signal);
      Object.assign(shown, { nodes: new Map(objects.map(node => [node.uid, node])), at, now, isTruncated });
      noticeTruncation();
      render();
    } catch (error) {
      if (error.name === 'AbortError') return;
      const isGone = error.status === 410;
      if (isGone) timeline.show(null);
      notice(`Revision ${at} ${isGone ? 'is no longer kept.' : `cannot be shown: ${error.message}`}`);
    }
  }, DEBOUNCE);
}

// Messages.

function connected(isConnected, error) {
  document.body.classList.toggle('offline', !isConnected);
  if (isConnected) noticeTruncation();
  else if ([401, 403].includes(error.status)) notice('This page has no access any more. Open it again with: coracle ui');
  else notice(error.status === 429 ? error.message : 'The control plane does not respond. Trying again.');
}

function noticeTruncation() {
  notice(shown.isTruncated ? `Only ${shown.nodes.size} objects are shown: there are more.` : '');
}

function notice(text) {
  byId('notice').hidden = !text;
  byId('notice').textContent = text;
}

// Filters.

let filtersShown = '';
function fillFilters() {
  const visible = [...shown.nodes.values()].filter(node => filter.background || !node.isBackground);
  const namespaces = [...new Set(visible.map(node => node.namespace ?? '-'))].sort();
  const kinds = [...new Set(visible.map(node => node.kind))].sort();
  const withoutStates = matcher({ ...filter, states: new Set() });
  const counts = Object.fromEntries(Object.keys(stateName).map(state => [state, 0]));
  for (const node of visible) if (node.state in counts && withoutStates(node)) counts[node.state]++;
  const version = JSON.stringify([namespaces, kinds, counts, [...filter.states], filter.namespace, filter.kind]);
  if (version === filtersShown) return;
  filtersShown = version;
  const options = (id, all, values) => {
    // A filter for what does not exist at this moment stays.
    const wanted = [['', all], ...[...new Set([...values, ...(filter[id] ? [filter[id]] : [])])].map(value => [value, value === '-' ? 'Cluster' : value])];
    byId(id).replaceChildren(...wanted.map(([value, text]) => element('option', { value }, text)));
    byId(id).value = filter[id];
  };
  options('namespace', 'All namespaces', namespaces);
  options('kind', 'All kinds', kinds);
  for (const chip of byId('states').children) {
    const { state } = chip.dataset;
    chip.setAttribute('aria-pressed', String(filter.states.has(state)));
    chip.setAttribute('aria-label', `${counts[state]} ${stateName[state]}`);
    chip.classList.toggle('none', counts[state] === 0);
    chip.querySelector('.count').textContent = counts[state];
  }
}

for (const chip of byId('states').children) {
  chip.addEventListener('click', () => {
    const { state } = chip.dataset;
    if (!filter.states.delete(state)) filter.states.add(state);
    render();
  });
}
byId('filter').addEventListener('input', event => { filter.text = event.target.value; schedule(); });
for (const id of ['namespace', 'kind']) byId(id).addEventListener('change', ({ target }) => { filter[id] = target.value; render(); });
byId('background').addEventListener('click', event => {
  filter.background = !filter.background;
  event.currentTarget.setAttribute('aria-pressed', String(filter.background));
  timeline.arrange();
  render();
});

// Selection.

function select(uid, opens) {
  selected = uid;
  canvas.selected = uid;
  timeline.setObject(uid);
  if (uid) canvas.reveal(uid);
  canvas.draw();
  describeItem();
  if (isList && forest) list.show(forest, shown.now, selected);
  if (uid && (opens || !panel.area.hidden)) openPanel();
  else if (!uid) closePanel();
}

function describeItem() {
  const item = forest?.items.get(selected);
  const tree = byId('forest');
  const shadow = byId('item');
  if (!item) {
    tree.removeAttribute('aria-activedescendant');
    shadow.textContent = '';
    return;
  }
  const { node } = item;
  const waits = node.blockedBy?.map(uid => shown.nodes.get(uid)).filter(Boolean).map(({ kind, name }) => `${kind} ${name}`) ?? [];
  shadow.textContent = [
    `${node.kind} ${node.name}`, stateName[node.state], node.reason,
    waits.length ? `waits for ${waits.join(', ')}` : '', node.finalizers ? `finalizers ${node.finalizers.join(', ')}` : '',
    item.children.length ? `${item.children.length} dependents` : '',
  ].filter(Boolean).join(', ');
  const position = { level: item.depth + 1, setsize: item.siblings.length, posinset: item.siblings.indexOf(item) + 1 };
  for (const [name, value] of Object.entries(position)) shadow.setAttribute(`aria-${name}`, value);
  tree.setAttribute('aria-activedescendant', 'item');
}

function openPanel() {
  const node = shown.nodes.get(selected);
  if (node) panel.open(node, shown.nodes, shown.at, shown.now);
  document.body.classList.toggle('opened', !panel.area.hidden);
}

function closePanel() {
  const hadFocus = panel.area.contains(document.activeElement);
  panel.close();
  document.body.classList.remove('opened');
  if (hadFocus) byId(isList ? 'filter' : 'forest').focus();
}

function walk(key) {
  const { sequence, items } = forest ?? { sequence: [] };
  const item = items?.get(selected);
  const steps = {
    ArrowDown: item ? sequence[item.index + 1] : sequence[0],
    ArrowUp: item ? sequence[item.index - 1] : sequence.at(-1),
    ArrowRight: item ? item.children[0] : sequence[0],
    ArrowLeft: item ? item.parent : sequence[0],
    Home: sequence[0],
    End: sequence.at(-1),
  };
  if (steps[key]) select(steps[key].node.uid, false);
}

// Views and keys.

function showList(wanted) {
  isList = wanted;
  byId('list').hidden = !wanted;
  byId('forest').hidden = wanted;
  byId('zoom').hidden = wanted;
  byId('as-forest').setAttribute('aria-pressed', String(!wanted));
  byId('as-list').setAttribute('aria-pressed', String(wanted));
  if (forest) render();
}

const clicks = {
  'as-forest': () => showList(false),
  'as-list': () => showList(true),
  'zoom-in': () => canvas.zoomBy(1.25),
  'zoom-out': () => canvas.zoomBy(0.8),
  'zoom-fit': () => canvas.fit(),
  live: () => timeline.show(null),
  earlier: () => timeline.step(-1),
  later: () => timeline.step(1),
  'help-button': () => byId('help').showModal(),
  'help-close': () => byId('help').close(),
};
for (const [id, click] of Object.entries(clicks)) byId(id).addEventListener('click', click);

byId('forest').addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(Arrow|Home$|End$)/.test(event.key)) {
    walk(event.key);
    event.preventDefault();
  } else if (event.key === 'Enter' && selected) {
    select(selected, true);
    panel.area.focus();
    event.preventDefault();
  }
});

const keys = {
  '/': () => byId('filter').focus(),
  '?': clicks['help-button'],
  '[': clicks.earlier,
  ']': clicks.later,
  l: clicks.live,
  t: () => showList(!isList),
  '+': clicks['zoom-in'],
  '-': clicks['zoom-out'],
  0: clicks['zoom-fit'],
};

document.addEventListener('keydown', event => {
  if (byId('help').open || event.ctrlKey || event.metaKey || event.altKey) return;
  const isText = event.target.matches('input:not([type=range]), select, textarea');
  if (event.key === 'Escape') {
    if (event.target === byId('filter') && filter.text) {
      filter.text = event.target.value = '';
      render();
    } else if (!panel.area.hidden) closePanel();
    else if (isText) byId('forest').focus();
    else if (selected) select(null, false);
    event.preventDefault();
  } else if (!isText && Object.hasOwn(keys, event.key)) {
    keys[event.key]();
    event.preventDefault();
  } else if (event.target === byId('filter') && (event.key === 'Enter' || event.key === 'ArrowDown') && !isList) {
    byId('forest').focus();
    const first = forest?.sequence.find(item => item.isMatch);
    if (first) select(first.node.uid, false);
    event.preventDefault();
  }
});

live.run();
