import { h, table, stat, podLink } from './dom.js';
import { read, every, Rates, keyOf } from './api.js';
import { count, podOf, packets } from './format.js';

class Drops extends HTMLElement {
  connectedCallback() {
    this.rates = new Rates();
    this.body = h('div', {}, h('p', { class: 'empty' }, 'Reading counters.'));
    this.append(
      h('h1', {}, 'Drops'),
      h(
        'p',
        { class: 'lead' },
        'Packets that did not arrive, and the dataplane’s reasons. Rates are of the last seconds.',
      ),
      this.body,
    );
    every(this, 2000, () => this.load());
  }

  async load() {
    try {
      this.rates.add(await read('counters'));
      this.show();
    } catch (e) {
      this.body.replaceChildren(h('p', { class: 'error', role: 'alert' }, e.message));
      this.rates = new Rates();
    }
  }

  show() {
    const r = this.rates;
    const counted = r.errors
      .map((e) => ({ ...e, rate: r.of(e.node + '|' + e.reason, 'count') }))
      .sort((a, b) => (b.rate || 0) - (a.rate || 0) || b.count - a.count);
    const errors = counted.filter((e) => !e.statistic);
    const normal = counted.filter((e) => e.statistic);
    const links = r.interfaces
      .map((i) => ({ ...i, key: keyOf(i), sum: i.rxDrops + i.txDrops }))
      .filter((i) => i.sum > 0)
      .sort((a, b) => b.sum - a.sum);
    const rateOf = (n) => (n === null ? '…' : n === 0 ? '0' : packets(n));
    const focused = this.body.contains(document.activeElement) && document.activeElement.getAttribute('aria-label');
    const opened = this.body.querySelector('details')?.open;
    this.body.replaceChildren(
      h(
        'dl',
        { class: 'stats' },
        stat('Reasons counted', count(errors.length)),
        stat(
          'Counted now',
          rateOf(errors.reduce((a, e) => a + (e.rate || 0), 0)),
          errors.some((e) => e.rate > 0) ? 'warn' : '',
        ),
        stat('Interfaces with drops', count(links.length)),
        stat('Packets dropped at interfaces', count(links.reduce((a, l) => a + l.sum, 0))),
      ),
      h('h2', {}, 'By reason'),
      reasons('Drops by reason', errors, rateOf, 'The dataplane dropped no packet.'),
      h(
        'details',
        { class: 'normal', open: opened },
        h('summary', {}, `Counted, but no drops: ${count(normal.length)}`),
        reasons('Counters that are no drops', normal, rateOf, 'Nothing else was counted.'),
      ),
      h('h2', {}, 'By interface'),
      table(
        'Drops by interface',
        [
          { title: 'Pod', class: 'wide' },
          { title: 'Interface' },
          { title: 'Type' },
          { title: 'To the pod', numeric: true },
          { title: 'Now', numeric: true },
          { title: 'From the pod', numeric: true },
          { title: 'Now', numeric: true },
          { title: 'Meaning', class: 'wide' },
        ],
        links.slice(0, 200).map((l) => ({
          cells: [
            podLink(podOf(l.pod)) || l.attachment.containerId.slice(0, 12),
            l.interface,
            l.type,
            count(l.rxDrops),
            rateOf(r.of(l.key, 'rxDrops')),
            count(l.txDrops),
            rateOf(r.of(l.key, 'txDrops')),
            dropText(l),
          ],
        })),
        'No interface of a pod has dropped a packet.',
      ),
    );
    if (focused) {
      const again = [...this.body.querySelectorAll('[tabindex]')].find((x) => x.getAttribute('aria-label') === focused);
      if (again) again.focus();
    }
  }
}

function reasons(caption, errors, rateOf, empty) {
  const worst = Math.max(1, ...errors.map((e) => e.count));
  return table(
    caption,
    [
      { title: 'Reason', class: 'wide' },
      { title: '' },
      { title: 'Count', numeric: true },
      { title: 'Now', numeric: true },
    ],
    errors.slice(0, 200).map((e) => ({
      cells: [
        [
          h('b', {}, e.reason),
          h('span', { class: 'graphnode' }, e.node),
          h('div', { class: 'explain' }, e.explanation),
        ],
        h('meter', { min: 0, max: 1, value: Math.log1p(e.count) / Math.log1p(worst), 'aria-hidden': 'true' }),
        count(e.count),
        rateOf(e.rate),
      ],
    })),
    empty,
  );
}

function dropText(l) {
  if (l.connected === false) return 'No program is connected to the memif.';
  if (l.rxDrops > l.txDrops) return 'The pod did not accept packets fast enough.';
  return 'The dataplane dropped packets of the pod; the reasons above say why.';
}

customElements.define('weft-drops', Drops);
