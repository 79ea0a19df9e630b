// The panel of an object: why it is as it is, its versions, its Events, and itself as YAML.

import { read } from './data.js';
import { age, clockTime, element, stateIcon, stateName } from './dom.js';
import { yaml } from './yaml.js';

const TABS = ['Why', 'Versions', 'Events', 'YAML'];
const QUESTIONS = { present: 'Why is it still there?', notReady: 'Why is it not ready?', gone: 'Why is it gone?' };
const LONGEST_VALUE = 400;
const MOST_VERSIONS = 100;

export class Panel {
  /// - pick: opens another object; show: shows a revision; close: closes the panel
  constructor(area, { pick, show, close }) {
    Object.assign(this, { area, pick, show, tab: 'Why', uid: null, turn: 0, node: null });
    this.title = element('h2', { id: 'panel-title' });
    this.badge = element('p', { class: 'badge' });
    this.tabs = TABS.map(name => element('button', {
      type: 'button', role: 'tab', id: `tab-${name}`, 'aria-controls': 'panel-body', click: () => this.choose(name),
      keydown: event => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.stopPropagation();
        const next = TABS[(TABS.indexOf(name) + step + TABS.length) % TABS.length];
        this.choose(next);
        this.tabs[TABS.indexOf(next)].focus();
      },
    }, name));
    this.body = element('div', { id: 'panel-body', role: 'tabpanel', tabindex: 0 });
    area.append(
      element('div', { class: 'panel-head' },
        element('div', {}, this.title, this.badge),
        element('button', { type: 'button', class: 'close', 'aria-label': 'Close', title: 'Close (Esc)', click: close }, '×')),
      element('div', { role: 'tablist', class: 'tabs', 'aria-label': 'Views of the object' }, this.tabs),
      this.body);
  }

  /// Shows an object.
  ///
  /// - node: as it is at the moment that is shown; nodes: all of them; at: the revision, null for now
  open(node, nodes, at, now) {
    const isSame = this.uid === node.uid && this.at === at && this.node?.resourceVersion === node.resourceVersion
      && this.node.state === node.state && this.node.reason === node.reason;
    const isOther = this.uid !== node.uid;
    Object.assign(this, { uid: node.uid, node, nodes, at, now });
    this.area.hidden = false;
    if (isSame) return;
    this.title.replaceChildren(element('span', { class: 'muted' }, node.kind), ' ', element('span', { class: 'break' }, node.name));
    const place = [node.namespace, `created ${age(node.created, now)} ago`, `revision ${node.resourceVersion}`].filter(Boolean).join(' · ');
    this.badge.replaceChildren(
      element('span', { class: `pill ${node.state}` }, stateIcon(node.state), stateName[node.state]), element('span', { class: 'muted' }, place));
    this.load(isOther);
  }

  close() {
    this.area.hidden = true;
    this.uid = null;
    this.turn++;
  }

  choose(tab) {
    this.tab = tab;
    this.load(true);
  }

  async load(isFirst) {
    const turn = ++this.turn;
    for (const [index, name] of TABS.entries()) {
      this.tabs[index].setAttribute('aria-selected', String(name === this.tab));
      this.tabs[index].tabIndex = name === this.tab ? 0 : -1;
    }
    this.body.setAttribute('aria-labelledby', `tab-${this.tab}`);
    if (isFirst) this.body.replaceChildren(...(this.tab === 'Why' ? this.facts() : []), element('p', { class: 'muted wait' }, 'Loading'));
    const { resource, namespace, name, uid } = this.node;
    const object = { resource, namespace, name, at: this.at };
    const readers = {
      Why: async () => [...this.facts(), ...this.why(await read('why', object))],
      Versions: async () => this.versions(await read('log', { ...object, at: null, diff: true, limit: MOST_VERSIONS })),
      Events: async () => this.events(await read('events', { uid, at: this.at })),
      YAML: async () => this.yaml((await read('object', object)).object),
    };
    let content;
    try {
      content = await readers[this.tab]();
    } catch (error) {
      const text = error.status === 404 && this.tab === 'Versions' ? 'No versions are available.' : error.message || 'The server does not respond.';
      content = [...(this.tab === 'Why' ? this.facts() : []), element('p', { class: 'muted' }, text)];
    }
    if (turn === this.turn) this.body.replaceChildren(...content);
  }

  link(uid) {
    const node = this.nodes.get(uid);
    if (!node) return element('span', { class: 'muted' }, 'an object that does not exist');
    return element('button', { type: 'button', class: 'link', click: () => this.pick(uid) },
      stateIcon(node.state), `${node.kind} ${node.name}`);
  }

  facts() {
    const { node } = this;
    const rows = [];
    const row = (name, values) => {
      if (values.length) rows.push(element('dt', {}, name), element('dd', {}, values));
    };
    if (node.reason) row('Reason', [element('span', { class: node.state }, node.reason)]);
    row('Waits for', (node.blockedBy ?? []).map(uid => this.link(uid)));
    row('Finalizers', (node.finalizers ?? []).map(name => element('code', { class: 'tag' }, name)));
    row('Owners', (node.owners ?? []).map(uid => this.link(uid)));
    const all = [...this.nodes.values()];
    const dependents = all.filter(other => other.owners?.includes(node.uid));
    row('Dependents', [
      ...dependents.slice(0, 12).map(other => this.link(other.uid)),
      ...(dependents.length > 12 ? [element('span', { class: 'muted' }, `and ${dependents.length - 12} more`)] : []),
    ]);
    row('Waited for by', all.filter(other => other.blockedBy?.includes(node.uid)).slice(0, 12).map(other => this.link(other.uid)));
    row('Uses', (node.edges ?? []).slice(0, 12).map(({ to }) => this.link(to)));
    row('Used by', all.filter(other => other.edges?.some(({ to }) => to === node.uid)).slice(0, 12).map(other => this.link(other.uid)));
    return rows.length ? [element('dl', { class: 'facts' }, rows)] : [];
  }

  why({ answers }) {
    if (!answers?.length) return [element('p', { class: 'muted' }, 'Nothing is known to be wrong.')];
    return answers.map(({ question, sentence, causes }) => element('section', { class: 'answer' },
      element('h3', {}, QUESTIONS[question] ?? question),
      element('p', {}, sentence),
      causes?.length ? element('ul', { class: 'causes' }, causes.map(cause => element('li', {},
        element('b', {}, cause.object ?? ''),
        cause.field ? element('code', {}, cause.field) : null,
        cause.waitsFor ? element('p', {}, `waits for ${cause.waitsFor}`) : null,
        cause.manager || cause.since ? element('p', { class: 'muted' }, [cause.manager, cause.since].filter(Boolean).join(' · ')) : null,
        cause.remedy ? element('pre', { class: 'command' }, cause.remedy) : null))) : null));
  }

  versions({ entries, isTruncated }) {
    if (!entries.length) return [element('p', { class: 'muted' }, 'History has no version of it.')];
    const value = (value, type) => value === undefined ? null
      : element(type, {}, (typeof value === 'string' ? value : JSON.stringify(value)).slice(0, LONGEST_VALUE));
    const list = entries.map(entry => element('li', { class: entry.code ? 'refused' : entry.isDeletion ? 'deletion' : '' },
      element('div', { class: 'version' },
        element('b', {}, [entry.verb, entry.subresource].filter(Boolean).join(' ')),
        entry.revision
          ? element('button', { type: 'button', class: 'link', title: 'Shows the picture at this revision', click: () => this.show(Number(entry.revision)) }, `revision ${entry.revision}`)
          : null,
        element('span', { class: 'muted' }, clockTime(entry.time)),
        element('span', { class: 'muted break', title: entry.userAgent }, [entry.user, entry.userAgent?.split(' ')[0]].filter(Boolean).join(' · '))),
      entry.code ? element('p', { class: 'failing' }, `${entry.code} ${entry.reason ?? ''}: ${entry.message ?? ''}`) : null,
      (entry.fields ?? []).map(({ path, from, to }) => element('div', { class: 'field-diff' },
        element('code', {}, path), element('span', { class: 'values' }, value(from, 'del'), value(to, 'ins'))))));
    return [element('ol', { class: 'versions' }, list), isTruncated ? element('p', { class: 'muted' }, 'Older versions are left out.') : ''];
  }

  events({ events }) {
    if (!events.length) return [element('p', { class: 'muted' }, 'No Events.')];
    return [element('ol', { class: 'events' }, events.map(event => element('li', { class: event.type === 'Warning' ? 'warning' : '' },
      element('div', { class: 'version' },
        element('b', {}, event.reason), element('span', { class: 'muted' }, clockTime(event.time)),
        event.count > 1 ? element('span', { class: 'muted' }, `${event.count} times`) : null, element('span', { class: 'muted' }, event.source)),
      element('p', { class: 'break' }, event.message))))];
  }

  yaml(object) {
    const fields = object.metadata?.managedFields;
    if (fields) delete object.metadata.managedFields;
    const lines = yaml(object).map(([indent, key, text]) => [indent, element('span', { class: 'key' }, key), key && text ? ' ' : '', text, '\n']);
    const copy = element('button', {
      type: 'button', class: 'copy', click: async event => {
        try {
          await navigator.clipboard.writeText(lines.map(line => line.map(part => part.textContent ?? part).join('')).join(''));
          event.target.textContent = 'Copied';
        } catch {
          event.target.textContent = 'The browser allows no copying';
        }
      },
    }, 'Copy');
    return [element('div', { class: 'yaml' }, copy, element('pre', { id: 'yaml' }, lines.flat()))];
  }
}
