import { h, table, rove, podLink } from './dom.js';
import { read, every } from './api.js';
import { age, count, plural, podOf } from './format.js';

class Objects extends HTMLElement {
  connectedCallback() {
    this.phase = this.parameters.get('phase') || '';
    this.query = h('input', {
      type: 'search',
      id: 'o-q',
      placeholder: 'vpp.route, or namespace/pod',
      value: this.parameters.get('q') || '',
      oninput: () => {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => this.load(), 200);
      },
    });
    this.phases = h('div', { class: 'segments', role: 'group', 'aria-label': 'Phase' });
    this.list = h('div', { class: 'list-pane' });
    this.detail = h(
      'section',
      { class: 'detail card', 'aria-live': 'polite', 'aria-label': 'The selected object' },
      h('p', { class: 'empty' }, 'Select an object to see why it is as it is.'),
    );
    this.append(
      h('h1', {}, 'Objects'),
      h(
        'form',
        { class: 'filters', role: 'search', 'aria-label': 'Search for objects', onsubmit: (e) => e.preventDefault() },
        h('label', { for: 'o-q' }, 'Search'),
        this.query,
        this.phases,
      ),
      h('div', { class: 'split' }, this.list, this.detail),
    );
    every(this, 5000, () => this.load());
    if (this.parameters.get('ref')) this.select(this.parameters.get('ref'));
  }

  async load() {
    try {
      const reply = await read('objects', { q: this.query.value.trim(), phase: this.phase });
      if (JSON.stringify(reply) === this.last) return;
      this.last = JSON.stringify(reply);
      this.show(reply);
    } catch (e) {
      this.last = '';
      this.list.replaceChildren(h('p', { class: 'error', role: 'alert' }, e.message));
    }
  }

  show({ objects, total, phases }) {
    const had = this.phases.contains(document.activeElement);
    const focused = this.list.contains(document.activeElement) && document.activeElement.textContent;
    const all = Object.values(phases).reduce((a, b) => a + b, 0);
    this.phases.replaceChildren(
      ...[['', all], ...Object.entries(phases).sort()].map(([p, n]) =>
        h(
          'button',
          {
            type: 'button',
            'aria-pressed': p === this.phase,
            onclick: () => {
              this.phase = p;
              this.load();
            },
          },
          `${p || 'all'} ${count(n)}`,
        ),
      ),
    );
    rove(this.phases, 'button');
    if (had) (this.phases.querySelector('[aria-pressed=true]') || this.phases.firstChild).focus();
    this.list.replaceChildren(
      h(
        'p',
        { class: 'note' },
        plural(total, 'object') +
          (total > objects.length
            ? `; the first ${count(objects.length)} are shown, narrow the search for others`
            : ''),
      ),
      table(
        'Objects',
        [
          { title: 'Object', class: 'wide' },
          { title: 'Owner', class: 'wide' },
          { title: 'Phase' },
          { title: 'Since', numeric: true },
        ],
        objects.map((o) => ({
          cells: [
            h('button', { type: 'button', class: 'link', onclick: () => this.select(o.ref) }, o.ref),
            ownersOf(o),
            h('span', { class: 'tag ' + toneOf(o.phase) }, o.phase),
            age(o.since),
          ],
        })),
        'No object matches.',
      ),
    );
    if (focused) {
      const b = [...this.list.querySelectorAll('button')].find((x) => x.textContent === focused);
      if (b) b.focus();
    }
  }

  async select(ref) {
    try {
      const o = await read('object', { ref });
      this.detail.replaceChildren(
        ...[
          h('h2', {}, h('code', {}, o.ref)),
          h(
            'p',
            {},
            h('span', { class: 'tag ' + toneOf(o.phase) }, o.phase),
            ` since ${age(o.since)}`,
            o.owners.length ? [', of ', ownersOf(o)] : '',
          ),
          h('h3', {}, 'Why'),
          h(
            'ul',
            { class: 'why' },
            o.why.map((line) => h('li', {}, line)),
          ),
          h('h3', {}, 'Desired and applied'),
          difference(o.desired, o.applied),
        ],
      );
    } catch (e) {
      this.detail.replaceChildren(h('p', { class: 'error', role: 'alert' }, e.message));
    }
  }
}

export const toneOf = (phase) =>
  ({
    InSync: 'good',
    Observed: 'calm',
    Pending: 'warn',
    Unknown: 'warn',
    Drifted: 'warn',
    Failed: 'bad',
    Invalid: 'bad',
    Removing: 'warn',
  })[phase] || 'calm';

// ownersOf returns links to the first pods that an object or an event belongs to, and counts the others.
export function ownersOf(o) {
  const links = o.owners
    .slice(0, 3)
    .map((w, i) => [
      i ? ', ' : '',
      podLink(
        podOf(w.pod) || w.containerId.slice(0, 12),
        `${podOf(w.pod) || w.containerId.slice(0, 12)}:${w.interface}`,
      ),
    ]);
  return o.owners.length > 3 ? [...links, ` and ${count(o.owners.length - 3)} more`] : links;
}

// flatten returns the fields of a value, as paths with texts.
function flatten(value, path, out) {
  if (value !== null && typeof value === 'object' && Object.keys(value).length) {
    for (const [k, v] of Object.entries(value)) flatten(v, path ? path + '.' + k : k, out);
  } else if (value !== undefined && path) out.set(path, typeof value === 'string' ? value : JSON.stringify(value));
  return out;
}

function difference(desired, applied) {
  const a = flatten(desired, '', new Map());
  const b = flatten(applied, '', new Map());
  const same = [...new Set([...a.keys(), ...b.keys()])].sort();
  if (!same.length)
    return h(
      'p',
      { class: 'empty' },
      desired || applied ? 'The object has no fields.' : 'Neither desired nor applied.',
    );
  return table(
    'Fields of the desired and the applied value',
    [
      { title: 'Field', class: 'field' },
      { title: 'Desired', class: 'wide' },
      { title: 'Applied', class: 'wide' },
      { title: '' },
    ],
    same.map((f) => {
      const equal = a.get(f) === b.get(f);
      return {
        attributes: { class: equal ? null : 'differs' },
        cells: [h('code', {}, f), a.has(f) ? a.get(f) : '–', b.has(f) ? b.get(f) : '–', equal ? '' : 'differs'],
      };
    }),
  );
}

customElements.define('weft-objects', Objects);
