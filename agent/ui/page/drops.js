import { h, table, stat } from './dom.js';
import { read, every, Rates, keyOf } from './api.js';
import { count, podOf, packets } from './format.js';

// Explanations of the counters of weft-vswitch that need one, by node and reason; then by words of the reason or of the graph node.
const exact = {
  'arp-reply/l3_dst_address_not_local': 'Not a loss for pods: ARP requests for addresses that the dataplane does not have.',
  'ip6-icmp-input/neighbor_solicitation_source_unknown': 'A neighbour solicitation came from an unknown address; pods send these while they configure an address.',
  'ethernet-input/no error': 'Dropped without a more specific reason, for example by a route that discards packets.',
  'ethernet-input/subinterface down': 'Frames arrived before their interface was up, or after it went down.',
  'ip6-input/multicast not forwarded': 'IPv6 multicast, such as router solicitations, stays on its link. This is normal.',
  'l2-learn/L2 learn misses': 'Not a loss: a bridge learned a new MAC address.',
  'l2-flood/L2 flood packets': 'Not a loss: frames that a bridge sent to all its ports.',
  'l2-input-acl/input ACL misses': 'Anti-spoofing dropped frames whose source is not an address of the pod. A few at the start of a pod are normal.',
  'ip4-inacl/input ACL misses': 'Anti-spoofing dropped packets whose source is not an address of the pod.',
  'ip6-inacl/input ACL misses': 'Anti-spoofing dropped packets whose source is not an address of the pod. A few at the start of a pod are normal.',
};
const meanings = [
  [/unresolved|no neighbou?r|arp/i, 'The next hop did not answer ARP or neighbour discovery. Is the destination running and on this network?'],
  [/spoof|macip|source/i, 'A pod sent from an address that is not its own; anti-spoofing dropped the packet.'],
  [/acl|denied|filter|policy/i, 'A rule of an access list dropped the packet.'],
  [/no route|fib|lookup|unroutable|null/i, 'No route leads to the destination address.'],
  [/ttl|hop limit/i, 'The packet crossed too many routers: look for a routing loop.'],
  [/checksum|malformed|bad|invalid|short|truncat/i, 'The packet was not valid.'],
  [/mtu|too (big|long)|frag/i, 'The packet is longer than the MTU of the outgoing interface and may not be fragmented.'],
  [/ring|queue|full|tx|buffer/i, 'The receiver did not empty its queue fast enough.'],
  [/down|not connected|disconnected/i, 'The outgoing interface is down, or the memif has no connected program.'],
  [/storm|rate|limit/i, 'Broadcasts exceeded the limit of the port.'],
  [/l2|learn|flood|bridge|unknown unicast/i, 'The bridge had no port for the frame.'],
  [/router adv|redirect|dhcp/i, 'A pod acted as a router or DHCP server; only the node may.'],
];
export const meaning = (e) => exact[e.node + '/' + e.reason] || (meanings.find(([words]) => words.test(e.reason)) || meanings.find(([words]) => words.test(e.node)) || [0, 'The dataplane counted this; see docs/operations.md.'])[1];

class Drops extends HTMLElement {
  connectedCallback() {
    this.rates = new Rates();
    this.body = h('div', {}, h('p', { class: 'empty' }, 'Reading counters.'));
    this.append(h('h1', {}, 'Drops'), h('p', { class: 'lead' }, 'Packets that did not arrive, and the dataplane’s reasons, with those counters that look like losses but are none. Rates are of the last seconds.'), this.body);
    every(this, 2000, () => this.load());
  }
  async load() {
    try { this.rates.add(await read('counters')); this.show(); } catch (e) { this.body.replaceChildren(h('p', { class: 'error', role: 'alert' }, e.message)); }
  }
  show() {
    const r = this.rates;
    const errors = r.errors.map((e) => ({ ...e, rate: r.of(e.node + '|' + e.reason, 'count') })).sort((a, b) => (b.rate || 0) - (a.rate || 0) || b.count - a.count);
    const links = r.interfaces.map((i) => ({ ...i, key: keyOf(i), sum: i.rxDrops + i.txDrops })).filter((i) => i.sum > 0).sort((a, b) => b.sum - a.sum);
    const rateOf = (n) => (n === null ? '…' : n === 0 ? '0' : packets(n));
    const focused = this.body.contains(document.activeElement) && document.activeElement.getAttribute('aria-label');
    const worst = Math.max(1, ...errors.map((e) => e.count));
    this.body.replaceChildren(
      h('dl', { class: 'stats' }, stat('Reasons counted', count(errors.length)), stat('Counted now', rateOf(errors.reduce((a, e) => a + (e.rate || 0), 0)), errors.some((e) => e.rate > 0) ? 'warn' : ''), stat('Interfaces with drops', count(links.length)), stat('Packets dropped at interfaces', count(links.reduce((a, l) => a + l.sum, 0)))),
      h('h2', {}, 'By reason'),
      table('Drops by reason', [{ title: 'Reason', class: 'wide' }, { title: '' }, { title: 'Count', numeric: true }, { title: 'Now', numeric: true }], errors.slice(0, 200).map((e) => ({ cells: [[h('b', {}, e.reason), h('span', { class: 'graphnode' }, e.node), h('div', { class: 'explain' }, meaning(e))], h('meter', { min: 0, max: 1, value: Math.log1p(e.count) / Math.log1p(worst), 'aria-hidden': 'true' }), count(e.count), rateOf(e.rate)] })), 'The dataplane counted no errors.'),
      h('h2', {}, 'By interface'),
      table('Drops by interface', [{ title: 'Pod', class: 'wide' }, { title: 'Interface' }, { title: 'Type' }, { title: 'To the pod', numeric: true }, { title: 'Now', numeric: true }, { title: 'From the pod', numeric: true }, { title: 'Now', numeric: true }, { title: 'Meaning', class: 'wide' }],
        links.slice(0, 200).map((l) => ({ cells: [podOf(l.pod) || l.attachment.containerId.slice(0, 12), l.interface, l.type, count(l.rxDrops), rateOf(r.of(l.key, 'rxDrops')), count(l.txDrops), rateOf(r.of(l.key, 'txDrops')), dropText(l)] })), 'No interface of a pod has dropped a packet.'));
    if (focused) { const again = [...this.body.querySelectorAll('[tabindex]')].find((x) => x.getAttribute('aria-label') === focused); if (again) again.focus(); }
  }
}
function dropText(l) {
  if (l.connected === false) return 'No program is connected to the memif.';
  if (l.rxDrops > l.txDrops) return 'The pod did not accept packets fast enough.';
  return 'The dataplane dropped packets of the pod; the reasons above say why.';
}
customElements.define('weft-drops', Drops);
