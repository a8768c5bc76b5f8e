import { h, s, table, rove, podLink } from './dom.js';
import { read, every } from './api.js';
import { age, count, time } from './format.js';

const states = [
  ['used', 'used'],
  ['leased', 'leased'],
  ['cooling', 'cooling'],
  ['internal', 'internal'],
  ['free', 'free'],
];
const cells = 256; // of a map; each is one address, or a block of them

class Addresses extends HTMLElement {
  connectedCallback() {
    this.open = new Map(); // pool -> the block that is shown
    this.pools = h('div', {});
    this.detail = h(
      'section',
      { class: 'card detail', 'aria-live': 'polite', 'aria-label': 'The selected addresses' },
      h('p', { class: 'empty' }, 'Select a square to see who has the address.'),
    );
    this.append(
      h('h1', {}, 'Addresses'),
      h(
        'ul',
        { class: 'legend', 'aria-label': 'Colours' },
        states.map(([c, t]) => h('li', {}, h('span', { class: 'swatch ' + c, 'aria-hidden': 'true' }), t)),
      ),
      h('div', { class: 'split' }, this.pools, this.detail),
    );
    every(this, 4000, () => this.load());
  }

  async load() {
    try {
      const reply = await read('addresses');
      if (JSON.stringify(reply) === this.last) return;
      this.last = JSON.stringify(reply);
      this.reply = reply;
      this.show();
    } catch (e) {
      this.last = '';
      this.pools.replaceChildren(h('p', { class: 'error', role: 'alert' }, e.message));
    }
  }

  show() {
    const focused = document.activeElement && document.activeElement.id;
    const names = [...new Map(this.reply.pools.map((p) => [p.name + p.prefix, p])).values()];
    this.pools.replaceChildren(
      ...names.map((p) => this.pool(p)),
      names.length ? '' : h('p', { class: 'empty' }, 'No pool.'),
    );
    if (focused && document.getElementById(focused)) document.getElementById(focused).focus();
  }

  pool(p) {
    const leases = this.reply.leases.filter((l) => l.pool === p.name && l.offset !== undefined && inside(l, p));
    const size = sizeOf(p.prefix);
    const open = this.open.get(p.name + p.prefix);
    const base = open ? open.first : 0;
    const span = open ? open.span : size > 1024 && p.prefix.includes(':') ? blockOf(leases, size) * cells : size;
    const per = Math.max(1, Math.ceil(Math.min(span, size - base) / cells));
    const n = Math.min(cells, Math.ceil(Math.min(span, size - base) / per));
    const blocks = Array.from({ length: n }, (_, i) => ({ first: base + i * per, span: per, leases: [] }));
    for (const l of leases) {
      const b = blocks[Math.floor((l.offset - base) / per)];
      if (b) b.leases.push(l);
    }
    const id = 'pool-' + this.reply.pools.indexOf(p);
    const grid = h(
      'div',
      { class: 'map', role: 'group', 'aria-label': `Map of pool ${p.name}, arrow keys move` },
      blocks.map((b, i) =>
        h('button', {
          type: 'button',
          id: `${id}-${i}`,
          class: 'cell ' + toneOf(b),
          'aria-label': this.describe(p, b),
          title: this.describe(p, b),
          onclick: () => this.select(p, b),
        }),
      ),
    );
    rove(grid, 'button');
    const busy = p.used + p.leased;
    return h(
      'article',
      { class: 'card' },
      h('h2', {}, p.name, h('span', { class: 'prefix' }, p.prefix)),
      h(
        'p',
        { class: 'note' },
        `${count(p.used)} used, ${count(p.leased)} leased, ${count(p.cooling)} cooling, ` +
          `${size > 2 ** 40 ? 'nearly all' : count(p.free)} free` +
          (size < 2 ** 40 && busy + p.free ? ` · ${((100 * busy) / (busy + p.free)).toFixed(1)} % in use` : ''),
      ),
      grid,
      h(
        'p',
        { class: 'note' },
        per === 1
          ? 'Each square is one address.'
          : `Each square is a block of ${per > 2 ** 40 ? 'many' : count(per)} addresses.`,
        n * per + base < size && size > 2 ** 20 ? ' The map shows the start of the pool; the rest is free.' : '',
        open
          ? [
              ' ',
              h(
                'button',
                {
                  type: 'button',
                  class: 'link',
                  onclick: () => {
                    this.open.delete(p.name + p.prefix);
                    this.show();
                  },
                },
                'Show the whole pool',
              ),
            ]
          : '',
      ),
    );
  }

  describe(p, b) {
    if (b.span === 1) {
      const l = b.leases[0];
      return l ? `${l.address}: ${l.state}${l.pod ? ' by ' + l.pod : ''}` : `${addressAt(p.prefix, b.first)}: free`;
    }
    return `from ${addressAt(p.prefix, b.first)}, ${b.leases.length} in use`;
  }

  select(p, b) {
    const one = b.span === 1;
    const rows = b.leases.slice(0, 256);
    this.detail.replaceChildren(
      ...[
        h('h2', {}, one && rows[0] ? rows[0].address : addressAt(p.prefix, b.first) + (one ? '' : ' and following')),
        one && rows[0]
          ? owner(rows[0])
          : one
            ? h('p', {}, 'The address is free.')
            : h(
                'p',
                {},
                `${count(b.leases.length)} of ${b.span > 2 ** 40 ? 'many' : count(b.span)} addresses are not free.`,
              ),
        !one && b.span <= 2 ** 30
          ? h(
              'p',
              {},
              h(
                'button',
                {
                  type: 'button',
                  class: 'action',
                  onclick: () => {
                    this.open.set(p.name + p.prefix, { first: b.first, span: b.span });
                    this.show();
                  },
                },
                'Enlarge this block',
              ),
            )
          : null,
        !one
          ? table(
              'Addresses of the block',
              [{ title: 'Address' }, { title: 'State' }, { title: 'Owner', class: 'wide' }],
              rows.map((l) => ({ cells: [l.address, l.state, ownerText(l)] })),
              'All are free.',
            )
          : null,
      ].filter(Boolean),
    );
  }
}

const inside = (l, p) => l.offset < sizeOf(p.prefix) && p.prefix.includes(':') === l.address.includes(':');
const sizeOf = (prefix) => {
  const [a, bits] = prefix.split('/');
  return 2 ** Math.min(1000, (a.includes(':') ? 128 : 32) - Number(bits));
};

// blockOf returns the addresses of a square of a large pool: a power of two, so that all leases are on the map if
// possible.
function blockOf(leases, size) {
  const last = Math.max(0, ...leases.map((l) => l.offset));
  let per = 1;
  while (per * cells <= last && per * cells < size) per *= 2;
  return per;
}

function toneOf(b) {
  for (const [state] of states.slice(0, 4)) {
    if (b.leases.some((l) => l.state === state))
      return state + (b.span > 1 && b.leases.length * 3 < b.span ? ' partly' : '');
  }
  return 'free';
}

function ownerText(l) {
  if (l.pod)
    return [l.state === 'cooling' ? 'was ' : '', podLink(l.pod, l.interface ? `${l.pod}:${l.interface}` : l.pod)];
  if (l.state === 'cooling') return 'was ' + (l.holder || 'in use');
  return l.state === 'internal' ? 'reserved by Weft' : l.holder || '–';
}

function owner(l) {
  const fact = (n, v) => [h('dt', {}, n), h('dd', {}, v)];
  return h(
    'dl',
    { class: 'facts-list' },
    fact('State', l.state),
    fact('Owner', ownerText(l)),
    fact('Pool', l.pool),
    l.since ? fact('Since', `${time(l.since)} (${age(l.since)})`) : [],
    l.freeAt ? fact('Free again', time(l.freeAt)) : [],
  );
}

// addressAt returns the address at an offset of a prefix.
function addressAt(prefix, offset) {
  const [address] = prefix.split('/');
  if (!address.includes(':')) {
    const n = address.split('.').reduce((a, p) => a * 256 + Number(p), 0) + offset;
    return [24, 16, 8, 0].map((b) => Math.floor(n / 2 ** b) % 256).join('.');
  }
  const [head, tail] = address.split('::').map((p) => (p ? p.split(':') : []));
  const parts = tail === undefined ? head : [...head, ...Array(8 - head.length - tail.length).fill('0'), ...tail];
  let n = parts.reduce((a, p) => (a << 16n) | BigInt('0x' + p), 0n) + BigInt(offset);
  const out = [];
  for (let i = 0; i < 8; i++) {
    out.unshift((n & 0xffffn).toString(16));
    n >>= 16n;
  }
  return out.join(':').replace(/(^|:)0(:0)+(:|$)/, '::');
}

customElements.define('weft-addresses', Addresses);
