import { h, s, table, stat, podHref, podLink } from './dom.js';
import { read, every, Rates, keyOf } from './api.js';
import { bits, packets, podOf, plural, count, cut } from './format.js';

const bound = 24; // pods drawn one by one; above it, pods are drawn as one box for each network

class Topology extends HTMLElement {
  connectedCallback() {
    this.rates = new Rates();
    this.figures = h('dl', { class: 'stats' });
    this.drawing = h(
      'div',
      { class: 'scroll drawing card', tabindex: 0, role: 'region', 'aria-label': 'Topology' },
      h('p', { class: 'empty' }, 'Reading.'),
    );
    this.filter = h('input', {
      type: 'search',
      id: 't-q',
      placeholder: 'namespace/pod or network',
      value: this.parameters.get('q') || '',
      oninput: () => this.show(),
    });
    this.rows = h('div', {});
    this.all = h('details', { ontoggle: () => this.showAll() }, h('summary', {}, ''), h('div', {}));
    this.problem = h('p', { class: 'error', role: 'alert', hidden: true });
    this.append(
      h('h1', {}, 'Topology'),
      this.problem,
      this.figures,
      this.drawing,
      h('h2', {}, 'Interfaces'),
      h(
        'form',
        { class: 'filters', role: 'search', 'aria-label': 'Filter of pods', onsubmit: (e) => e.preventDefault() },
        h('label', { for: 't-q' }, 'Pod or network'),
        this.filter,
      ),
      this.all,
      this.rows,
    );
    every(this, 2000, () => this.load());
  }

  async load() {
    const [topology, counters] = await Promise.allSettled([
      this.topology && this.age++ % 3 ? this.topology : read('topology'),
      read('counters'),
    ]);
    if (topology.status === 'fulfilled') {
      if (this.topology !== topology.value) this.age = 1;
      this.topology = topology.value;
    }
    if (counters.status === 'fulfilled') this.rates.add(counters.value);
    else this.rates = new Rates(); // old rates would look like those of now
    const failed = [topology, counters].find((r) => r.status === 'rejected');
    this.problem.hidden = !failed;
    if (failed) this.problem.textContent = failed.reason.message;
    if (this.topology) this.show();
  }

  // model returns pods with their interfaces and rates, and networks.
  model() {
    const counted = new Map(this.rates.interfaces.map((i) => [keyOf(i), i]));
    const pods = this.topology.attachments
      .map((a) => ({
        name: podOf(a.pod) || a.attachment.containerId.slice(0, 12),
        interfaces: a.interfaces.map((i) => {
          const key = `${a.attachment.network}/${a.attachment.containerId}/${a.attachment.ifName}/${i.name}`;
          const c = counted.get(key);
          return {
            ...i,
            network: i.network || 'default',
            pod: podOf(a.pod),
            connected: c && c.connected,
            rx: this.rates.of(key, 'rxBytes'),
            tx: this.rates.of(key, 'txBytes'),
            rxPackets: this.rates.of(key, 'rxPackets'),
            txPackets: this.rates.of(key, 'txPackets'),
          };
        }),
      }))
      .sort((a, b) => a.name.localeCompare(b.name));
    const networks = new Map();
    for (const p of pods)
      for (const i of p.interfaces) {
        if (!networks.has(i.network)) networks.set(i.network, { name: i.network, interfaces: [], pods: new Set() });
        networks.get(i.network).interfaces.push(i);
        networks.get(i.network).pods.add(p.name);
      }
    if (!networks.size) networks.set('default', { name: 'default', interfaces: [], pods: new Set() });
    const bridges = this.topology.networks
      .filter((o) => o.ref.startsWith('vpp.bridge-domain/'))
      .map((o) => o.ref.split(':').pop()); // NODE:NETWORK
    for (const n of networks.values()) n.kind = bridges.includes(n.name) ? 'bridge (L2)' : 'VRF (L3)';
    return {
      pods,
      networks: [...networks.values()].sort((a, b) =>
        a.name === 'default' ? -1 : b.name === 'default' ? 1 : a.name.localeCompare(b.name),
      ),
    };
  }

  show() {
    const { pods, networks } = this.model();
    const all = pods.flatMap((p) => p.interfaces);
    const memifs = all.filter((i) => i.type === 'memif');
    const known = this.rates.before !== null;
    this.figures.replaceChildren(
      stat('Pods', count(pods.length)),
      stat('Interfaces', count(all.length)),
      stat('Networks', count(networks.length)),
      stat('To pods', known ? bits(sum(all, 'rx')) : '…'),
      stat('From pods', known ? bits(sum(all, 'tx')) : '…'),
      stat(
        'Memif peers',
        memifs.length ? `${memifs.filter((i) => i.connected).length} of ${memifs.length} connected` : 'none',
        memifs.some((i) => !i.connected) ? 'warn' : '',
      ),
    );
    const words = this.filter.value.trim().toLowerCase();
    const found = pods.filter(
      (p) => !words || p.name.toLowerCase().includes(words) || p.interfaces.some((i) => i.network.includes(words)),
    );
    const at = this.drawing.scrollLeft;
    this.drawing.replaceChildren(draw(found, networks, this.topology.links));
    this.drawing.scrollLeft = at;
    this.found = found;
    this.showAll();
    this.showTable(found.flatMap((p) => p.interfaces.map((i) => ({ ...i, owner: p.name }))));
  }

  // showAll lists all pods that the filter leaves, also those that the table and the drawing do not show one by one.
  showAll() {
    this.all.firstChild.textContent = `All ${plural(this.found.length, 'pod')}`;
    const names = this.all.open ? this.found.map((p) => p.name).join(' ') : '';
    if (names === this.names) return;
    this.names = names;
    this.all.lastChild.replaceChildren(
      ...(this.all.open
        ? [
            h(
              'ul',
              { class: 'pods' },
              this.found.map((p) => h('li', {}, podLink(p.name))),
            ),
          ]
        : []),
    );
  }

  showTable(rows) {
    rows.sort((a, b) => (b.rx || 0) + (b.tx || 0) - (a.rx || 0) - (a.tx || 0) || a.owner.localeCompare(b.owner));
    const rate = (n, form) => (n === null || n === undefined ? '–' : form(n));
    const old = this.rows.querySelector('.scroll');
    const had = old && document.activeElement === old;
    const top = old ? old.scrollTop : 0;
    this.rows.replaceChildren(
      h(
        'p',
        { class: 'note' },
        plural(rows.length, 'interface') + (rows.length > 200 ? '; the 200 with most traffic are shown' : ''),
      ),
      table(
        'Interfaces with live rates, busiest first',
        [
          { title: 'Pod', class: 'wide' },
          { title: 'Interface' },
          { title: 'Network' },
          { title: 'Type' },
          { title: 'Addresses', class: 'wide' },
          { title: 'To the pod', numeric: true },
          { title: 'From the pod', numeric: true },
          { title: 'Packets', numeric: true },
        ],
        rows.slice(0, 200).map((i) => ({
          cells: [
            podLink(i.owner),
            i.name,
            i.network,
            i.type === 'memif' ? `memif, ${i.connected ? 'connected' : 'not connected'}` : i.type,
            i.addresses.join(' '),
            rate(i.rx, bits),
            rate(i.tx, bits),
            i.rxPackets === null ? '–' : packets(i.rxPackets + i.txPackets),
          ],
        })),
        'No pod is attached.',
      ),
    );
    const again = this.rows.querySelector('.scroll');
    if (again) {
      again.scrollTop = top;
      if (had) again.focus();
    }
  }
}

const sum = (list, field) => list.reduce((a, i) => a + (i[field] || 0), 0);

const column = { pod: 16, network: 486, node: 846 };
const wide = { pod: 250, network: 170, node: 218 };
function draw(pods, networks, links) {
  const boxes =
    pods.length > bound
      ? aggregates(pods, networks)
      : pods.map((p) => ({
          title: p.name,
          href: podHref(p.name),
          lines: p.interfaces.map((i) => ({
            text: `${i.name}  ${i.type}`,
            peer: i.type === 'memif' ? i.connected : undefined,
            network: i.network,
            rx: i.rx,
            tx: i.tx,
          })),
        }));
  let y = 34;
  for (const b of boxes) {
    b.y = y;
    b.height = 30 + b.lines.length * 24 + 6;
    y += b.height + 14;
  }
  const node = nodeBoxes(links, networks);
  const height = Math.max(y + 6, node.length * 74 + 60, networks.length * 76 + 60);
  const place = (list, size) =>
    list.forEach((n, i) => {
      n.y = 34 + ((height - 34) * (i + 0.5)) / list.length - size / 2;
    });
  place(networks, 52);
  place(node, 52);
  const peak = Math.max(1, ...boxes.flatMap((b) => b.lines.map((l) => (l.rx || 0) + (l.tx || 0))));
  return s(
    'svg',
    {
      viewBox: `0 0 1080 ${height}`,
      class: 'topology',
      role: 'img',
      'aria-label':
        `Topology: ${plural(pods.length, 'pod')} on ${plural(networks.length, 'network')}. ` +
        'The table below has the same data.',
    },
    [
      ['pod', 'Pods'],
      ['network', 'Networks'],
      ['node', 'Node and other nodes'],
    ].map(([k, t]) => s('text', { class: 'heading', x: column[k], y: 18 }, t)),
    boxes.flatMap((b) =>
      b.lines.map((l, i) =>
        edge(
          column.pod + wide.pod,
          b.y + 42 + i * 24,
          column.network,
          networks.find((n) => n.name === l.network),
          l,
          peak,
        ),
      ),
    ),
    node.flatMap((n) =>
      networks
        .filter((w) => n.network === w.name)
        .map((w) =>
          s('path', { class: 'edge still', d: curve(column.network + wide.network, w.y + 26, column.node, n.y + 26) }),
        ),
    ),
    boxes.map(podBox),
    networks.map(networkBox),
    node.map(nodeBox),
  );
}

function aggregates(pods, networks) {
  return networks.map((n) => {
    const mine = pods.flatMap((p) => p.interfaces.filter((i) => i.network === n.name));
    const types = [...new Set(mine.map((i) => i.type))].sort();
    return {
      title: `${plural(new Set(mine.map((i) => i.pod)).size, 'pod')} on ${n.name}`,
      href: '#/topology?q=' + encodeURIComponent(n.name),
      lines: types.map((t) => {
        const of = mine.filter((i) => i.type === t);
        return {
          text: `${plural(of.length, t)}`,
          network: n.name,
          rx: sum(of, 'rx'),
          tx: sum(of, 'tx'),
          peer: t === 'memif' ? of.every((i) => i.connected) : undefined,
        };
      }),
    };
  });
}

// deviceOf returns the kernel's name of an interface, if it has one.
function deviceOf(l) {
  if (l.value.tap && l.value.tap.name) return l.value.tap.name;
  if (l.value.afPacket && l.value.afPacket.link) return l.value.afPacket.link;
  return l.name;
}

function nodeBoxes(links, networks) {
  const tunnels = links.filter((l) => l.value.type === 'vxlan');
  const others = links.filter((l) => l.value.type !== 'vxlan' && l.value.type !== 'loopback');
  const boxes = others.slice(0, 8).map((l) => ({
    title: l.name.includes('host') || l.name === 'weft0' ? 'host link' : l.name,
    line: `${l.value.type} · ${deviceOf(l)}`,
    phase: l.phase,
    network: 'default',
  }));
  const peers = new Map();
  for (const t of tunnels) {
    const d = (t.value.vxlan || {}).destination;
    if (!peers.has(d)) peers.set(d, []);
    peers.get(d).push(t);
  }
  for (const [d, of] of [...peers].slice(0, 10))
    boxes.push({
      title: 'node ' + d,
      line: plural(of.length, 'VXLAN tunnel'),
      phase: (of.find((t) => t.phase !== 'InSync') || of[0]).phase,
      network: 'default',
    });
  if (peers.size > 10)
    boxes.push({
      title: plural(peers.size - 10, 'more node'),
      line: 'VXLAN tunnels',
      phase: 'InSync',
      network: 'default',
    });
  if (!peers.size) boxes.push({ title: 'other nodes', line: 'no tunnels', phase: '' });
  return boxes;
}

const curve = (x1, y1, x2, y2) => `M${x1} ${y1} C${x1 + 90} ${y1} ${x2 - 90} ${y2} ${x2} ${y2}`;
function edge(x1, y1, x2, network, line, peak) {
  if (!network) return [];
  const y2 = network.y + 26;
  const total = (line.rx || 0) + (line.tx || 0);
  const lost = line.peer === false;
  const thick = total > 0 ? 1.5 + (4.5 * Math.log1p(total)) / Math.log1p(peak) : 1.5;
  return [
    s('path', {
      class: 'edge' + (lost ? ' lost' : total > 0 ? ' busy' : ' still'),
      d: curve(x1, y1, x2, y2),
      'stroke-width': thick.toFixed(1),
    }),
    lost || total > 0
      ? s(
          'text',
          { class: 'rate' + (lost ? ' lost' : ''), x: x1 + 10, y: y1 - 5 },
          lost ? 'no peer' : `↓ ${bits(line.rx || 0)}  ↑ ${bits(line.tx || 0)}`,
        )
      : null,
  ];
}

function podBox(b) {
  const title = s('text', { class: 'title', x: column.pod + 14, y: b.y + 21 }, cut(b.title, 30));
  return s(
    'g',
    { class: 'box pod' },
    s('title', {}, b.title),
    s('rect', { x: column.pod, y: b.y, width: wide.pod, height: b.height, rx: 8 }),
    b.href ? s('a', { href: b.href }, title) : title,
    b.lines.map((l, i) => [
      s(
        'text',
        { class: 'line', x: column.pod + 14, y: b.y + 46 + i * 24 },
        l.text + (l.peer === undefined ? '' : l.peer ? '  ● connected' : '  ○ not connected'),
      ),
      s('circle', {
        class: 'port' + (l.peer === false ? ' lost' : ''),
        cx: column.pod + wide.pod,
        cy: b.y + 42 + i * 24,
        r: 4,
      }),
    ]),
  );
}

function networkBox(n) {
  return s(
    'g',
    { class: 'box network' },
    s('title', {}, `${n.name}: ${n.kind}`),
    s('rect', { x: column.network, y: n.y, width: wide.network, height: 52, rx: 26 }),
    s(
      'text',
      { class: 'title', x: column.network + wide.network / 2, y: n.y + 22, 'text-anchor': 'middle' },
      cut(n.name, 20),
    ),
    s(
      'text',
      { class: 'line', x: column.network + wide.network / 2, y: n.y + 40, 'text-anchor': 'middle' },
      `${n.kind} · ${plural(n.interfaces.length, 'port')}`,
    ),
  );
}

function nodeBox(n) {
  return s(
    'g',
    { class: 'box node' + (n.phase === 'InSync' ? '' : n.phase ? ' warn' : ' faint') },
    s('title', {}, `${n.title} ${n.phase}`),
    s('rect', { x: column.node, y: n.y, width: wide.node, height: 52, rx: 8 }),
    s('text', { class: 'title', x: column.node + 14, y: n.y + 22 }, cut(n.title, 26)),
    s('text', { class: 'line', x: column.node + 14, y: n.y + 40 }, cut(n.line, 32)),
  );
}

customElements.define('weft-topology', Topology);
