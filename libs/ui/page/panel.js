// The panel of an object: why it is as it is, its versions, its Events, and itself as YAML.

import { read } from './data.js';
import { age, byId, clockTime, element, stateIcon, stateName } from './dom.js';
import { yaml } from './yaml.js';

const QUESTIONS = { present: 'Why is it still there?', notReady: 'Why is it not ready?', gone: 'Why is it gone?' };
const LONGEST_VALUE = 400;
const muted = text => element('p', { class: 'muted' }, text);
const quiet = text => element('span', { class: 'muted' }, text);
const MOST_VERSIONS = 100;
const MOST_LINKS = 12;

export class Panel {
  /// - pick: opens another object; show: shows a revision; close: closes the panel
  constructor({ pick, show, close }) {
    Object.assign(this, { area: byId('panel'), body: byId('panel-body'), pick, show, tab: 0, uid: null, node: null });
    byId('close').addEventListener('click', close);
    this.tabs = [...byId('tabs').children];
    this.tabs.forEach((tab, index) => {
      tab.addEventListener('click', () => this.choose(index));
      tab.addEventListener('keydown', event => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        this.choose((index + step + this.tabs.length) % this.tabs.length);
        this.tabs[this.tab].focus();
      });
    });
  }

  /// - node: as it is at the moment that is shown; nodes: all of them; at: the revision, null for now
  open(node, nodes, at, now) {
    const version = JSON.stringify([node, at]);
    const isSame = this.version === version;
    const isOther = this.uid !== node.uid;
    Object.assign(this, { uid: node.uid, node, nodes, at, version });
    this.area.hidden = false;
    if (isSame) return;
    byId('panel-title').replaceChildren(quiet(node.kind), ' ', element('span', { class: 'break' }, node.name));
    const place = [node.namespace, `created ${age(node.created, now)} ago`, `revision ${node.resourceVersion}`].filter(Boolean).join(' · ');
    byId('badge').replaceChildren(
      element('span', { class: `pill ${node.state}` }, stateIcon(node.state), stateName[node.state]), quiet(place));
    this.load(isOther);
  }

  close() {
    this.area.hidden = true;
    this.uid = this.version = null;
    this.reading?.abort();
  }

  choose(tab) {
    this.tab = tab;
    this.load(true);
  }

  async load(isFirst) {
    this.reading?.abort();
    const { signal } = this.reading = new AbortController();
    this.tabs.forEach((tab, index) => {
      tab.setAttribute('aria-selected', String(index === this.tab));
      tab.tabIndex = index === this.tab ? 0 : -1;
    });
    this.body.setAttribute('aria-labelledby', this.tabs[this.tab].id);
    const head = () => (this.tab === 0 ? this.facts() : []);
    if (isFirst) this.body.replaceChildren(...head(), muted('Loading'));
    const { resource, namespace, name, uid } = this.node;
    const object = { resource, namespace, name, at: this.at };
    const readers = [
      async () => this.why(await read('why', object, signal)),
      async () => this.versions(await read('log', { ...object, at: null, diff: true, limit: MOST_VERSIONS }, signal)),
      async () => this.events(await read('events', { uid, at: this.at }, signal)),
      async () => this.yaml((await read('object', object, signal)).object),
    ];
    let content;
    try {
      content = await readers[this.tab]();
    } catch (error) {
      content = [muted(error.status === 404 && this.tab === 1 ? 'No versions are available.' : error.message)];
    }
    if (!signal.aborted) this.body.replaceChildren(...head(), ...content);
  }

  link(uid) {
    const node = this.nodes.get(uid);
    if (!node) return quiet('an object that does not exist');
    return element('button', { type: 'button', class: 'link', click: () => this.pick(uid) },
      stateIcon(node.state), `${node.kind} ${node.name}`);
  }

  facts() {
    const { node } = this;
    const rows = [];
    const row = (name, values) => {
      if (values.length) rows.push(element('dt', {}, name), element('dd', {}, values));
    };
    const links = (name, uids = []) => row(name, [
      ...uids.slice(0, MOST_LINKS).map(uid => this.link(uid)),
      ...(uids.length > MOST_LINKS ? [quiet(`and ${uids.length - MOST_LINKS} more`)] : []),
    ]);
    const others = names => [...this.nodes.values()].filter(names).map(({ uid }) => uid);
    if (node.reason) row('Reason', [element('span', { class: node.state }, node.reason)]);
    links('Waits for', node.blockedBy);
    row('Finalizers', (node.finalizers ?? []).map(name => element('code', { class: 'tag' }, name)));
    links('Owners', node.owners);
    links('Dependents', others(({ owners }) => owners?.includes(node.uid)));
    links('Waited for by', others(({ blockedBy }) => blockedBy?.includes(node.uid)));
    links('Uses', node.edges?.map(({ to }) => to));
    links('Used by', others(({ edges }) => edges?.some(({ to }) => to === node.uid)));
    return rows.length ? [element('dl', { class: 'facts' }, rows)] : [];
  }

  why({ answers }) {
    if (!answers?.length) return [muted('Nothing is known to be wrong.')];
    return answers.map(({ question, sentence, causes }) => element('section', { class: 'answer' },
      element('h3', {}, QUESTIONS[question] ?? question),
      element('p', {}, sentence),
      causes?.length ? element('ul', { class: 'causes' }, causes.map(cause => element('li', {},
        element('b', {}, cause.object ?? ''),
        cause.field ? element('code', {}, cause.field) : null,
        cause.waitsFor ? element('p', {}, `waits for ${cause.waitsFor}`) : null,
        cause.manager || cause.since ? muted([cause.manager, cause.since].filter(Boolean).join(' · ')) : null,
        cause.remedy ? element('pre', { class: 'command' }, cause.remedy) : null))) : null));
  }

  versions({ entries, isTruncated }) {
    if (!entries.length) return [muted('History has no version of it.')];
    const value = (value, type) => value === undefined ? null
      : element(type, {}, (typeof value === 'string' ? value : JSON.stringify(value)).slice(0, LONGEST_VALUE));
    const list = entries.map(entry => element('li', { class: entry.code ? 'refused' : entry.isDeletion ? 'deletion' : '' },
      element('div', { class: 'version' },
        element('b', {}, [entry.verb, entry.subresource].filter(Boolean).join(' ')),
        entry.revision
          ? element('button', { type: 'button', class: 'link', click: () => this.show(Number(entry.revision)) }, `revision ${entry.revision}`)
          : null,
        quiet(clockTime(entry.time)),
        element('span', { class: 'muted break' }, [entry.user, entry.userAgent?.split(' ')[0]].filter(Boolean).join(' · '))),
      entry.code ? element('p', { class: 'failing' }, `${entry.code} ${entry.reason ?? ''}: ${entry.message ?? ''}`) : null,
      (entry.fields ?? []).map(({ path, from, to }) => element('div', { class: 'field-diff' },
        element('code', {}, path), element('span', { class: 'values' }, value(from, 'del'), value(to, 'ins'))))));
    return [element('ol', { class: 'versions' }, list), isTruncated ? muted('Older versions are left out.') : ''];
  }

  events({ events }) {
    if (!events.length) return [muted('No Events.')];
    return [element('ol', { class: 'events' }, events.map(event => element('li', { class: event.type === 'Warning' ? 'warning' : '' },
      element('div', { class: 'version' },
        element('b', {}, event.reason), quiet(clockTime(event.time)),
        event.count > 1 ? quiet(`${event.count} times`) : null, quiet(event.source)),
      element('p', { class: 'break' }, event.message))))];
  }

  yaml(object) {
    delete object.metadata?.managedFields;
    const lines = yaml(object).map(([indent, key, text]) => [indent, element('span', {}, key), key && text ? ' ' : '', text, '\n']);
    return [element('pre', { id: 'yaml' }, lines.flat())];
  }
}
