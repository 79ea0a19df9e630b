// Objects as lines of YAML.

const PLAIN = /^[A-Za-z_./][A-Za-z0-9_./-]*$/;
const WORDS = new Set(['true', 'false', 'null', 'yes', 'no', 'on', 'off', 'y', 'n', '~']);
const DEEPEST = 60;
const MOST_LINES = 5000;

function scalar(value) {
  if (typeof value !== 'string') return String(value);
  return PLAIN.test(value) && !WORDS.has(value.toLowerCase()) ? value : JSON.stringify(value);
}

const isEmpty = value => Object.keys(value).length === 0;

/// Returns the lines of a value: `[indent, key, value]` each.
export function yaml(value) {
  const lines = [];
  const add = (indent, key, text) => {
    if (lines.length < MOST_LINES) lines.push([indent, key, text]);
    else if (lines.length === MOST_LINES) lines.push([0, '', '... and more']);
  };
  // - first, rest: the indentation of the first line and of those after it
  const write = (value, depth, key, first, rest) => {
    if (lines.length > MOST_LINES) return;
    if (value === null || typeof value !== 'object') {
      if (typeof value === 'string' && value.includes('\n') && !/[\u0000-\u0008\u000b-\u001f\u007f]/.test(value)) {
        add(first, key, '|');
        for (const line of value.replace(/\n$/, '').split('\n')) add(`${rest}  `, '', line);
      } else add(first, key, scalar(value));
    } else if (depth > DEEPEST) add(first, key, '...');
    else if (isEmpty(value)) add(first, key, Array.isArray(value) ? '[]' : '{}');
    else {
      if (key) add(first, key, '');
      let begin = key ? rest : first;
      for (const [name, member] of Object.entries(value)) {
        if (Array.isArray(value)) write(member, depth + 1, '', `${begin}- `, `${rest}  `);
        else if (key) write(member, depth + 1, `${scalar(name)}:`, `${rest}  `, `${rest}  `);
        else write(member, depth + 1, `${scalar(name)}:`, begin, rest);
        begin = rest;
      }
    }
  };
  write(value, 0, '', '', '');
  return lines;
}
