// The same objects as a table: the text alternative of the picture.

import { age, byId, element, stateIcon, stateName } from './dom.js';

const MOST_ROWS = 2000;

export class List {
  /// - picked: called with the uid that was clicked
  constructor(picked) {
    Object.assign(this, { picked, rows: new Map() });
  }

  show(forest, now, selected) {
    const matching = forest.sequence.filter(item => item.isMatch);
    const rows = new Map();
    for (const { node, parent } of matching.slice(0, MOST_ROWS)) {
      const owner = parent ? `${parent.node.kind}/${parent.node.name}` : '';
      const version = JSON.stringify([node.resourceVersion, node.state, node.reason, owner, age(node.created, now)]);
      const old = this.rows.get(node.uid);
      rows.set(node.uid, old?.version === version ? old : { version, row: this.row(node, owner, now) });
      rows.get(node.uid).row.classList.toggle('selected', node.uid === selected);
    }
    this.rows = rows;
    // Rows that stay where they are keep the focus.
    const body = byId('rows');
    [...rows.values()].forEach(({ row }, index) => {
      if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
    });
    while (body.children.length > rows.size) body.lastChild.remove();
    byId('more').hidden = matching.length <= MOST_ROWS;
  }

  row(node, owner, now) {
    const cell = (name, ...content) => element('td', { class: name }, content);
    return element('tr', { click: () => this.picked(node.uid) },
      cell(node.state, stateIcon(node.state), stateName[node.state]), cell('kind', node.kind), cell('namespace', node.namespace ?? ''),
      cell('name', element('button', { type: 'button' }, node.name)), cell('owner', owner), cell('reason', node.reason ?? ''),
      cell('age', age(node.created, now)));
  }
}
