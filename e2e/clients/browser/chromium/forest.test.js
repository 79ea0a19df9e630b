// The modules of the page that need no browser: the forest and its layout, YAML, abbreviations, and the reading of pictures.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const load = name => import(`data:text/javascript,${encodeURIComponent(readFileSync(new URL(`../../../../libs/ui/page/${name}`, import.meta.url), 'utf8'))}`);
const { grow, matcher, place } = await load('forest.js');
const { yaml } = await load('yaml.js');
const { abbreviation } = await load('dom.js');
const { Live } = await load('data.js');

const all = { text: '', namespace: '', kind: '', states: new Set(), background: true };
const node = (name, owners = [], rest = {}) => ({ uid: name, kind: 'Pod', namespace: 'shop', name, owners, state: 'ready', resource: 'pods', ...rest });
const forestOf = (nodes, filter = {}) => grow(new Map(nodes.map(node => [node.uid, node])), matcher({ ...all, ...filter }));
const names = forest => forest.sequence.map(({ node, depth }) => `${'  '.repeat(depth)}${node.name}`);

test('dependents follow their owners, by kind and by number', () => {
  const forest = forestOf([node('web-10', ['web']), node('web-2', ['web']), node('web', [], { kind: 'StatefulSet' }), node('a', [], { kind: 'ConfigMap' }),
    node('node-0', [], { namespace: undefined, kind: 'Node' }), node('z', [], { namespace: 'payments' })]);
  assert.deepEqual(names(forest), ['z', 'web', '  web-2', '  web-10', 'a', 'node-0']);
  assert.deepEqual(forest.sections.map(({ namespace }) => namespace), ['payments', 'shop', '']);
});

test('circles of owners are cut at the smallest uid, and objects with missing owners are roots', () => {
  assert.deepEqual(names(forestOf([node('c', ['b']), node('b', ['a']), node('a', ['c'])])), ['a', '  b', '    c']);
  assert.deepEqual(names(forestOf([node('self', ['self']), node('lost', ['nobody'])])), ['lost', 'self']);
  assert.deepEqual(names(forestOf([node('d', ['c']), node('c', ['b']), node('b', ['c'])])), ['b', '  c', '    d']);
});

test('chains of owners are cut at a depth of 32', () => {
  const chain = Array.from({ length: 200 }, (_, index) => node(`n${index}`, index ? [`n${index - 1}`] : []));
  const forest = forestOf(chain);
  assert.equal(forest.sequence.length, 200);
  assert.ok(Math.max(...forest.sequence.map(({ depth }) => depth)) <= 32);
});

test('a filter shows what matches, and the owners of that', () => {
  const nodes = [node('web', [], { kind: 'StatefulSet' }), node('web-0', ['web'], { state: 'failing', reason: 'CrashLoopBackOff' }), node('web-1', ['web']),
    node('kube', [], { isBackground: true })];
  for (const [filter, want] of [
    [{ text: 'crash' }, ['web', '  web-0']], [{ states: new Set(['failing']) }, ['web', '  web-0']], [{ text: 'statefulset web' }, ['web']],
    [{ namespace: 'other' }, []], [{ namespace: '-' }, []], [{ kind: 'StatefulSet' }, ['web']], [{ background: false }, ['web', '  web-0', '  web-1']],
    [{ text: 'toString' }, []],
  ]) assert.deepEqual(names(forestOf(nodes, filter)), want, JSON.stringify(filter));
  const forest = forestOf(nodes, { text: 'crash' });
  assert.deepEqual(forest.sequence.map(({ isMatch }) => isMatch), [false, true]);
});

test('no cards overlap at any width', () => {
  let seed = 7;
  const random = below => (seed = (seed * 1103515245 + 12345) % 2147483648) % below;
  const kinds = ['Deployment', 'ReplicaSet', 'Pod', 'ConfigMap'];
  const nodes = Array.from({ length: 400 }, (_, index) => node(`n${index}`, index && random(3) ? [`n${random(index)}`] : [],
    { kind: kinds[random(4)], namespace: ['a', 'b', undefined][random(3)], reason: random(4) ? '' : 'a reason' }));
  for (let index = 0; index < 60; index++) nodes.push(node(`leaf${index}`, ['n0'], { namespace: nodes[0].namespace }));
  for (const width of [320, 390, 768, 1024, 1440, 2560]) {
    const forest = forestOf(nodes);
    place(forest, width);
    const { sequence } = forest;
    assert.equal(sequence.length, nodes.length);
    for (const [index, a] of sequence.entries()) {
      assert.ok(a.x >= 0 && a.y >= 0 && a.x + a.w <= forest.width && a.y + a.h <= forest.height, `${width} ${a.node.name}`);
      for (const b of sequence.slice(index + 1)) {
        const overlaps = a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
        assert.ok(!overlaps, `${width}: ${a.node.name} and ${b.node.name}`);
      }
    }
  }
});

test('objects are written as YAML', () => {
  const text = value => yaml(value).map(([indent, key, text]) => `${indent}${key}${key && text ? ' ' : ''}${text}`).join('\n');
  assert.equal(text({ a: { b: [1, { c: 'x', d: [], f: { g: [{ h: 1, i: 2 }] } }, [2, 3]], 'e: f': 'yes' }, t: 'l1\nl2\n', n: null, s: '' }), [
    'a:', '  b:', '  - 1', '  - c: x', '    d: []', '    f:', '      g:', '      - h: 1', '        i: 2', '  - - 2', '    - 3', '  "e: f": "yes"',
    't: |', '  l1', '  l2', '"n": null', 's: ""'].join('\n'));
  assert.equal(text({ a: 'x\u0007\ny' }), 'a: "x\\u0007\\ny"');
  const deep = Array.from({ length: 500 }).reduce(value => ({ a: value }), 1);
  assert.ok(text(deep).endsWith('...'));
  assert.ok(yaml(Array.from({ length: 20000 }, (_, index) => index)).length <= 5001);
});

test('kinds are abbreviated, whatever their names are', () => {
  assert.deepEqual(['Pod', 'PersistentVolumeClaim', 'Widget', 'constructor', 'toString'].map(abbreviation), ['pod', 'pvc', 'widget', 'constructor', 'tostring']);
});

test('a new picture is read when the revision has expired, and not when there are too many streams', async t => {
  const picture = { objects: [node('a')], resourceVersion: '7', oldest: '1', now: '', isTruncated: false };
  const change = { changed: [node('b')], deleted: [], resourceVersion: '8', oldest: '5', now: '', isTruncated: true };
  const refused = (code, message) => new Response(JSON.stringify({ message }), { status: code });
  const responses = [Response.json(picture), refused(429, '16 pages follow'), new Response(`${JSON.stringify(change)}\n`), refused(410, 'expired')];
  const [paths, messages, states] = [[], [], []];
  await new Promise(done => {
    t.mock.method(globalThis, 'fetch', async path => {
      paths.push(path.replace('data/', ''));
      if (responses.length) return responses.shift();
      done();
      return new Promise(() => {});
    });
    const changed = () => states.push([live.revision, live.oldest, live.isTruncated, live.nodes.size]);
    const live = new Live({ changed, connected: (isConnected, error) => { if (!isConnected) messages.push(error.message); } });
    live.run();
  });
  assert.deepEqual(paths, ['picture?', 'picture?watch=1&since=7', 'picture?watch=1&since=7', 'picture?watch=1&since=8', 'picture?']);
  assert.deepEqual(messages, ['16 pages follow', 'expired']);
  assert.deepEqual(states, [['7', '1', false, 1], ['8', '5', true, 2]]);
});
