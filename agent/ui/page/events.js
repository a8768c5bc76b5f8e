import { h, table, announce, podLink } from './dom.js';
import { read } from './api.js';
import { time, duration, plural, podOf } from './format.js';
import { ownersOf } from './objects.js';

const limit = 200; // rows shown

class Events extends HTMLElement {
  connectedCallback() {
    this.events = [];
    const p = this.parameters;
    this.text = h('input', {
      type: 'search',
      id: 'f-text',
      placeholder: 'namespace/pod or words',
      value: p.get('q') || '',
      oninput: () => this.show(),
    });
    this.kind = h('select', { id: 'f-kind', onchange: () => this.show() }, h('option', { value: '' }, 'all kinds'));
    this.failed = h('input', { type: 'checkbox', id: 'f-failed', onchange: () => this.show() });
    this.failed.checked = p.get('failed') === '1';
    this.live = h('span', { class: 'live', role: 'status' }, 'connecting');
    this.rows = h('div', {});
    this.append(
      h('h1', {}, 'Events'),
      h(
        'form',
        { class: 'filters', role: 'search', 'aria-label': 'Filter of events', onsubmit: (e) => e.preventDefault() },
        h('label', { for: 'f-text' }, 'Pod or text'),
        this.text,
        h('label', { for: 'f-kind' }, 'Kind'),
        this.kind,
        h('label', { class: 'check', for: 'f-failed' }, this.failed, 'only failed'),
        this.live,
      ),
      this.rows,
    );
    this.follow = (e) => this.showLive(e.detail);
    document.addEventListener('answered', this.follow);
    this.load();
  }

  // showLive says whether events arrive: the stream of a stopped agent stays open.
  showLive(answered) {
    if (!this.source || this.source.readyState !== EventSource.OPEN) return;
    this.live.textContent = answered ? 'live' : 'no answer';
    this.live.classList.toggle('on', answered);
  }

  disconnectedCallback() {
    document.removeEventListener('answered', this.follow);
    clearTimeout(this.retry);
    if (this.source) this.source.close();
  }

  // again reads everything again: a browser does not reconnect after an error of the proxy.
  again() {
    this.live.textContent = 'reconnecting';
    this.live.classList.remove('on');
    clearTimeout(this.retry);
    if (this.isConnected) this.retry = setTimeout(() => this.load(), 2000);
  }

  async load() {
    try {
      this.events = (await read('events', { last: 1000 })).events;
    } catch (e) {
      this.rows.replaceChildren(h('p', { class: 'error', role: 'alert' }, e.message));
      this.again();
      return;
    }
    this.show();
    const next = this.events.length ? this.events[this.events.length - 1].seq + 1 : 1;
    this.source = new EventSource('/api/stream?since=' + next);
    this.source.onopen = () => this.showLive(true);
    this.source.onerror = () => {
      this.source.close();
      this.again();
    };
    this.source.onmessage = (m) => this.add(JSON.parse(m.data));
  }

  add(e) {
    if (this.events.some((o) => o.seq === e.seq)) return;
    this.events.push(e);
    if (this.events.length > 1000) this.events.shift();
    if (this.shows(e)) announce(`${e.error ? 'Failed event' : 'Event'} ${e.seq}: ${e.event}`);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.show(), 100);
  }

  shows(e) {
    const words = this.text.value.trim().toLowerCase();
    return (
      (!words || [e.event, e.error, ...namesOf(e)].join(' ').toLowerCase().includes(words)) &&
      (!this.kind.value || kindOf(e) === this.kind.value) &&
      (!this.failed.checked || e.error !== '')
    );
  }

  show() {
    const kinds = [...new Set(this.events.map(kindOf))].sort();
    for (const k of kinds) {
      if (![...this.kind.options].some((o) => o.value === k)) this.kind.append(h('option', { value: k }, k));
    }
    const found = this.events.filter((e) => this.shows(e)).reverse();
    const slowest = Math.max(...found.slice(0, limit).map((e) => parseFloat(e.took) || 0), 1e-9);
    const focus = document.activeElement && document.activeElement.getAttribute('href');
    this.rows.replaceChildren(
      h(
        'p',
        { class: 'note' },
        `${plural(found.length, 'event')}${found.length > limit ? `; the newest ${limit} are shown` : ''}`,
      ),
      table(
        'Events, newest first',
        [
          { title: '#', numeric: true },
          { title: 'Time' },
          { title: 'Event', class: 'wide' },
          { title: 'Pod', class: 'wide' },
          { title: 'Took', numeric: true },
          { title: '' },
          { title: 'Operations', numeric: true },
          { title: 'Result', class: 'wide' },
        ],
        found.slice(0, limit).map((e) => ({
          cells: [
            h('a', { href: '#/event?seq=' + e.seq }, String(e.seq)),
            time(e.arrived),
            e.event,
            podsOf(e),
            duration(e.took),
            h('meter', {
              min: 0,
              max: 1,
              value: Math.sqrt((parseFloat(e.took) || 0) / slowest),
              'aria-hidden': 'true',
            }),
            e.operations,
            outcome(e),
          ],
        })),
        'No event matches the filter.',
      ),
    );
    if (focus && focus.startsWith('#/event?')) {
      const again =
        this.rows.querySelector(`a[href="${CSS.escape(focus)}"]`) ||
        [...this.rows.querySelectorAll('a')].find((a) => a.getAttribute('href') === focus);
      if (again) again.focus();
    }
  }
}

const namesOf = (e) => e.owners.map((o) => `${podOf(o.pod)}:${o.interface}`);
// podsOf returns links to the pods of an event: those of the objects that it changed, or the one that a request names.
export function podsOf(e) {
  const named = /^\S+ pod ([^\s/]+\/\S+) (\S+)/.exec(e.event);
  if (e.owners.length || !named) return ownersOf(e);
  return podLink(named[1], `${named[1]}:${named[2]}`);
}

const kindOf = (e) => e.event.split(/[ :]/)[0] || e.kind;
export function outcome(e) {
  if (!e.error) return h('span', { class: 'tag good' }, 'ok');
  return [
    h('span', { class: 'tag bad' }, e.refused ? 'refused' : e.undone ? 'undone' : 'failed'),
    ' ',
    h('span', { class: 'errortext' }, e.error),
  ];
}

customElements.define('weft-events', Events);
