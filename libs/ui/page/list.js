// The same objects as a table: the text alternative of the picture.

import { age, element, stateIcon, stateName } from './dom.js';

const STEP = 500;

export class List {
  /// - picked: called with the uid that was clicked
  constructor(area, picked) {
    Object.assign(this, { area, picked, limit: STEP, rows: new Map() });
    const heads = ['State', 'Kind', 'Namespace', 'Name', 'Owner', 'Reason', 'Age'];
    this.body = element('tbody');
    this.more = element('button', { type: 'button', class: 'more', hidden: true, click: () => { this.limit += STEP; this.show(this.forest, this.now, this.selected); } });
    area.append(
      element('table', { 'aria-label': 'Objects' },
        element('thead', {}, element('tr', {}, heads.map(head => element('th', { scope: 'col', class: head.toLowerCase() }, head)))),
        this.body),
      this.more);
  }

  show(forest, now, selected) {
    Object.assign(this, { forest, now, selected });
    const matching = forest.sequence.filter(item => item.isMatch);
    const rows = new Map();
    for (const item of matching.slice(0, this.limit)) {
      const { node } = item;
      const version = JSON.stringify([node.resourceVersion, node.state, node.reason, item.parent?.node.uid, age(node.created, now)]);
      const old = this.rows.get(node.uid);
      rows.set(node.uid, old?.version === version ? old : { version, row: this.row(item) });
    }
    this.rows = rows;
    const wanted = [...rows.values()].map(({ row }) => row);
    if (wanted.length !== this.body.children.length || wanted.some((row, index) => this.body.children[index] !== row)) {
      this.body.replaceChildren(...wanted);
    }
    for (const [uid, { row }] of rows) {
      row.classList.toggle('selected', uid === selected);
    }
    this.more.hidden = matching.length <= this.limit;
    this.more.textContent = `Show more of ${matching.length} objects`;
  }

  row({ node, parent }) {
    const owner = parent?.node;
    return element('tr', { click: () => this.picked(node.uid) },
      element('td', { class: `state ${node.state}` }, stateIcon(node.state), element('span', {}, stateName[node.state])),
      element('td', { class: 'kind' }, node.kind),
      element('td', { class: 'namespace' }, node.namespace ?? ''),
      element('td', { class: 'name' }, element('button', { type: 'button' }, node.name)),
      element('td', { class: 'owner' }, owner ? `${owner.kind}/${owner.name}` : ''),
      element('td', { class: 'reason' }, node.reason ?? ''),
      element('td', { class: 'age' }, age(node.created, this.now)));
  }
}
