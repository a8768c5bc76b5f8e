// Elements are made from nodes and texts only: names of pods are untrusted input, so no string is ever parsed as
// markup.
const SVG = 'http://www.w3.org/2000/svg';

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || (value === false && !name.startsWith('aria-'))) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true && !name.startsWith('aria-') ? '' : String(value));
  }
  for (const child of children.flat(3)) {
    if (child !== undefined && child !== null && child !== false) node.append(child);
  }
  return node;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// table returns a table in a region that scrolls with the keyboard.
export function table(caption, columns, rows, empty = 'Nothing here.') {
  if (!rows.length) return h('p', { class: 'empty' }, empty);
  const head = h(
    'tr',
    {},
    columns.map((c) => h('th', { scope: 'col', class: c.numeric ? 'n' : null }, c.title)),
  );
  const body = rows.map((r) =>
    h(
      'tr',
      r.attributes || {},
      r.cells.map((c, i) => h('td', { class: columns[i].numeric ? 'n' : columns[i].class }, c)),
    ),
  );
  return h(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    h('table', {}, h('caption', { class: 'sr' }, caption), h('thead', {}, head), h('tbody', {}, body)),
  );
}

// podLink returns a link to the view of a pod; a container outside Kubernetes has none.
export const podHref = (name) => (name.includes('/') ? '#/pod?name=' + encodeURIComponent(name) : null);
export const podLink = (name, text) => (podHref(name) ? h('a', { href: podHref(name) }, text || name) : text || name);

// stat returns one figure with its name.
export const stat = (name, value, tone) =>
  h('div', { class: 'stat ' + (tone || '') }, h('dt', {}, name), h('dd', {}, value));

// announce tells users of screen readers about a change.
export function announce(text) {
  document.getElementById('announcer').textContent = text;
}

// rove makes a group of controls one stop of Tab; arrow keys move within it.
export function rove(group, selector) {
  const items = () => [...group.querySelectorAll(selector)];
  const activate = (item) => items().forEach((i) => i.setAttribute('tabindex', i === item ? 0 : -1));
  if (items().length)
    activate(
      items().find((i) => i.getAttribute('aria-current') || i.getAttribute('aria-pressed') === 'true') || items()[0],
    );
  if (group.dataset.roves) return;
  group.dataset.roves = 'yes';
  group.addEventListener('focusin', (e) => {
    if (e.target.matches(selector)) activate(e.target);
  });
  group.addEventListener('keydown', (e) => {
    const all = items();
    const at = all.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
    let next;
    if (at < 0) return;
    if (step) next = all[(at + step + all.length) % all.length];
    if (e.key === 'Home') next = all[0];
    if (e.key === 'End') next = all[all.length - 1];
    if (!next) return;
    e.preventDefault();
    next.focus();
  });
}
