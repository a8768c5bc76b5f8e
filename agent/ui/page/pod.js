import { h, table, stat } from './dom.js';
import { read, every, Rates, keyOf } from './api.js';
import { age, bits, count, plural, time, duration } from './format.js';
import { outcome } from './events.js';
import { toneOf, ownersOf } from './objects.js';

const limit = 100; // events shown

class Pod extends HTMLElement {
  connectedCallback() {
    this.name = this.parameters.get('name') || '';
    this.rates = new Rates();
    this.body = h('div', {}, h('p', { class: 'empty' }, 'Reading.'));
    this.append(h('p', {}, h('a', { href: '#/topology' }, '← all pods')), h('h1', {}, this.name), this.body);
    every(this, 3000, () => this.load());
  }

  async load() {
    const [pod, counters] = await Promise.allSettled([read('pod', { name: this.name }), read('counters')]);
    if (counters.status === 'fulfilled') this.rates.add(counters.value);
    else this.rates = new Rates();
    if (pod.status === 'fulfilled') this.show(pod.value);
    else this.body.replaceChildren(h('p', { class: 'error', role: 'alert' }, pod.reason.message));
  }

  show({ attachments, phases, notInSync, events }) {
    const total = Object.values(phases).reduce((a, b) => a + b, 0);
    const focus = this.body.contains(document.activeElement) && document.activeElement.getAttribute('href');
    this.body.replaceChildren(
      ...[
        h(
          'dl',
          { class: 'stats' },
          stat('Interfaces', count(attachments.reduce((n, a) => n + a.interfaces.length, 0))),
          stat('Objects', h('a', { href: '#/objects?q=' + encodeURIComponent(this.name + ':') }, count(total))),
          stat('Not in sync', count(notInSync.length), notInSync.length ? 'warn' : ''),
          stat('Events', h('a', { href: '#/events?q=' + encodeURIComponent(this.name) }, count(events.length))),
          attachments.length ? stat('Attached', age(attachments[0].created)) : stat('Attached', 'no', 'warn'),
        ),
        attachments.some((a) => a.notChecked)
          ? h('p', { class: 'error' }, attachments.find((a) => a.notChecked).notChecked)
          : null,
        h('h2', {}, 'Interfaces'),
        this.interfaces(attachments),
        notInSync.length
          ? [
              h('h2', {}, 'Objects that are not in sync'),
              table(
                'Objects that are not in sync',
                [
                  { title: 'Object', class: 'wide' },
                  { title: 'Owner' },
                  { title: 'Phase' },
                  { title: 'Error', class: 'wide' },
                ],
                notInSync.map((o) => ({
                  cells: [
                    h('a', { href: '#/objects?ref=' + encodeURIComponent(o.ref) }, o.ref),
                    ownersOf(o),
                    h('span', { class: 'tag ' + toneOf(o.phase) }, o.phase),
                    o.error || 'waits for ' + o.missing.join(', '),
                  ],
                })),
              ),
            ]
          : null,
        h('h2', {}, 'Events'),
        h(
          'p',
          { class: 'note' },
          plural(events.length, 'event') + (events.length > limit ? `; the newest ${limit} are shown` : ''),
        ),
        table(
          'Events of the pod, newest first',
          [
            { title: '#', numeric: true },
            { title: 'Time' },
            { title: 'Event', class: 'wide' },
            { title: 'Took', numeric: true },
            { title: 'Result', class: 'wide' },
          ],
          events
            .reverse()
            .slice(0, limit)
            .map((e) => ({
              cells: [
                h('a', { href: '#/event?seq=' + e.seq }, String(e.seq)),
                time(e.arrived),
                e.event,
                duration(e.took),
                outcome(e),
              ],
            })),
          'No event is recorded.',
        ),
      ]
        .flat()
        .filter(Boolean),
    );
    if (focus) {
      const again = [...this.body.querySelectorAll('a')].find((a) => a.getAttribute('href') === focus);
      if (again) again.focus();
    }
  }

  interfaces(attachments) {
    const rate = (n) => (n === null ? '–' : bits(n));
    return table(
      'Interfaces of the pod',
      [
        { title: 'Interface' },
        { title: 'Network' },
        { title: 'Type' },
        { title: 'Addresses', class: 'wide' },
        { title: 'MAC' },
        { title: 'MTU', numeric: true },
        { title: 'To the pod', numeric: true },
        { title: 'From the pod', numeric: true },
      ],
      attachments.flatMap((a) =>
        a.interfaces.map((i) => {
          const key = keyOf({ attachment: a.attachment, interface: i.name });
          return {
            cells: [
              i.name,
              i.network || 'default',
              i.peer ? `${i.type}, ${i.peer}` : i.type,
              i.addresses.join(' '),
              i.mac,
              i.mtu,
              rate(this.rates.of(key, 'rxBytes')),
              rate(this.rates.of(key, 'txBytes')),
            ],
          };
        }),
      ),
      'The pod has no attachment now.',
    );
  }
}

customElements.define('weft-pod', Pod);
