import { h, s, table } from './dom.js';
import { read } from './api.js';
import { nanos, time, plural, cut, podOf } from './format.js';
import { outcome, podsOf } from './events.js';

class Event extends HTMLElement {
  async connectedCallback() {
    const seq = this.parameters.get('seq');
    this.append(h('h1', {}, 'Event ' + seq), h('p', { class: 'empty' }, 'Reading.'));
    try {
      const doc = await read('event', { seq });
      this.replaceChildren(...show(doc, Number(seq)));
    } catch (e) {
      this.replaceChildren(h('h1', {}, 'Event ' + seq), h('p', { class: 'error', role: 'alert' }, e.message), back());
    }
  }
}

const back = () => h('p', {}, h('a', { href: '#/events' }, '← all events'));

function show({ event, transactions }, seq) {
  const bars = waterfall(event, transactions);
  const total = Math.max(1, ...bars.map((b) => b.at + b.took));
  const forward = bars.filter((b) => !b.undo);
  const undo = bars.filter((b) => b.undo);
  return [
    back(),
    h('h1', {}, `Event ${seq}`),
    h('p', { class: 'lead' }, event.event),
    h(
      'dl',
      { class: 'stats' },
      figure('Arrived', time(event.arrived)),
      figure('In the queue', nanos(span(event.queued))),
      figure('Took', nanos(span(event.took))),
      figure('Operations', String(event.operations)),
      figure('Transactions', (event.transactions || []).join(', ') || '–'),
      figure('Pods', podsOf(event)),
      figure('Result', outcome(event)),
    ),
    event.sharedWith.length
      ? h(
          'p',
          { class: 'note' },
          'Other events share the transaction: ',
          event.sharedWith.map((n, i) => [i ? ', ' : '', h('a', { href: '#/event?seq=' + n }, '#' + n)]),
          '. Only the operations of this event are shown.',
        )
      : [],
    h('h2', {}, 'From the request to the dataplane'),
    drawing(forward, total, 'Waterfall of the event'),
    undo.length
      ? [
          h('h2', { class: 'undo' }, 'Rollback'),
          h(
            'p',
            { class: 'note' },
            plural(undo.length, 'operation') +
              ` ${undo.length === 1 ? 'was' : 'were'} undone after the error, in reverse order.`,
          ),
          drawing(undo, total, 'Waterfall of the rollback'),
        ]
      : [],
    waiting(transactions),
    h(
      'details',
      {},
      h('summary', {}, 'The same as a table'),
      table(
        'Steps of the event',
        [
          { title: 'Step', class: 'wide' },
          { title: 'What' },
          { title: 'Level', numeric: true },
          { title: 'At', numeric: true },
          { title: 'Took', numeric: true },
          { title: 'Result', class: 'wide' },
        ],
        bars.map((b) => ({
          cells: [
            b.name,
            b.undo ? 'rollback' : b.kind,
            b.level === undefined ? '' : b.level,
            nanos(Math.round(b.at)),
            nanos(b.took),
            b.error || 'ok',
          ],
        })),
      ),
    ),
  ].flat();
}

// span returns the nanoseconds of a duration, which the API gives in seconds: "0.0034s".
const span = (text) => Math.round((parseFloat(text) || 0) * 1e9);
const figure = (name, value) => h('div', { class: 'stat' }, h('dt', {}, name), h('dd', {}, value));

// waterfall returns one bar for each part: { name, kind, at, took, depth, error, undo }, times in nanoseconds since the
// arrival.
function waterfall(event, transactions) {
  const arrived = new Date(event.arrived).getTime() * 1e6 + sub(event.arrived);
  transactions = shareOf(event, transactions);
  const since = (text) => new Date(text).getTime() * 1e6 + sub(text) - arrived;
  const bars = [
    {
      name: event.event,
      kind: 'request',
      at: 0,
      took: span(event.queued) + span(event.took),
      depth: 0,
      error: event.error,
    },
  ];
  if (span(event.queued) > 0)
    bars.push({ name: 'waits in the queue', kind: 'queue', at: 0, took: span(event.queued), depth: 1 });
  let at = 0;
  for (const step of event.steps || []) {
    if (step.number > 1) at = Math.max(at, span(event.queued)); // the first step precedes the queue
    bars.push({ name: step.name, kind: 'step', at, took: span(step.took), depth: 1, error: step.error });
    if (step.name === 'run handlers') addHandlers(bars, event, at);
    if (step.name === 'commit') addTransactions(bars, transactions, since);
    at += span(step.took);
  }
  if (!bars.some((b) => b.kind === 'handler')) addHandlers(bars, event, span(event.queued));
  if (!bars.some((b) => b.kind === 'transaction')) addTransactions(bars, transactions, since);
  return bars;
}

// shareOf leaves out the operations of other events of a shared transaction.
function shareOf(event, transactions) {
  if (!event.sharedWith.length) return transactions;
  const own = new Set(
    (event.handlers || []).flatMap((handler) =>
      (handler.changes || []).map((change) => change.slice(change.indexOf(' ') + 1)),
    ),
  );
  return transactions.map((t) => ({ ...t, operations: t.operations.filter((op) => own.has(op.ref)) }));
}

function addTransactions(bars, transactions, since) {
  for (const t of transactions) {
    const start = Math.max(0, since(t.start));
    bars.push({
      name: `transaction ${t.seq}: ${t.label || t.origin}`,
      kind: 'transaction',
      at: start,
      took: span(t.took),
      depth: 2,
      error: t.error,
    });
    if (span(t.planTook))
      bars.push({ name: 'plan', kind: 'plan', at: start + span(t.queued), took: span(t.planTook), depth: 3 });
    for (const op of t.operations || []) {
      bars.push({
        name: `${op.verb} ${op.ref}${
          op.owners.length
            ? ' of ' +
              op.owners
                .map((o) => `${podOf(o.pod) || o.containerId.slice(0, 12)}:${o.interface}`)
                .slice(0, 3)
                .join(', ')
            : ''
        }`,
        kind: 'operation',
        at: start + span(op.at),
        took: span(op.took),
        depth: 3,
        level: op.level,
        error: op.error,
        undo: op.why === 'undo',
        why: op.why,
      });
    }
  }
}

function addHandlers(bars, event, at) {
  for (const handler of event.handlers || []) {
    const n = (handler.changes || []).length;
    bars.push({
      name: handler.name + (n ? ` (${plural(n, 'change')})` : ''),
      kind: 'handler',
      at,
      took: span(handler.took),
      depth: 2,
      error: handler.error,
    });
    at += span(handler.took);
  }
}

// sub returns the nanoseconds of a time that Date cannot represent.
const sub = (text) => {
  const m = /\.(\d+)/.exec(text || '');
  return m ? Number((m[1] + '000000000').slice(3, 9)) : 0;
};

const rowHeight = 22;
const left = 440;
const width = 1120;
const right = 84;
function drawing(bars, total, title) {
  const shown = bars.slice(0, 400);
  const scale = (width - left - right) / total;
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  const height = shown.length * rowHeight + 26;
  const svg = s(
    'svg',
    {
      viewBox: `0 0 ${width} ${height}`,
      class: 'waterfall',
      role: 'img',
      'aria-label':
        `${title}: ${plural(bars.length, 'row')}, ${nanos(Math.round(total))} in total. ` +
        'The table below has the same data.',
    },
    ticks.map((t) => [
      s('line', { class: 'tick', x1: left + t * total * scale, x2: left + t * total * scale, y1: 20, y2: height }),
      s(
        'text',
        {
          class: 'axis',
          x: left + t * total * scale,
          y: 13,
          'text-anchor': t === 1 ? 'end' : t === 0 ? 'start' : 'middle',
        },
        nanos(Math.round(t * total)),
      ),
    ]),
    shown.map((b, i) => {
      const y = 24 + i * rowHeight;
      const x = left + b.at * scale;
      const w = Math.max(2, b.took * scale);
      const tone = b.error ? 'bad' : b.undo ? 'undone' : b.kind;
      return s(
        'g',
        { class: 'bar ' + tone },
        s('title', {}, titleOf(b)),
        i % 2 ? null : s('rect', { class: 'stripe', x: 0, y, width, height: rowHeight }),
        s(
          'text',
          { class: 'name', x: 6 + b.depth * 16, y: y + 15 },
          (b.error ? '✕ ' : '') + cut(b.name, 59 - b.depth * 4),
        ),
        b.level !== undefined && (i === 0 || shown[i - 1].level !== b.level)
          ? s('text', { class: 'level', x: left - 10, y: y + 15, 'text-anchor': 'end' }, 'level ' + b.level)
          : null,
        s('rect', {
          class: 'time',
          x: Math.min(x, width - right - 2),
          y: y + 5,
          width: w,
          height: rowHeight - 10,
          rx: 2,
        }),
        s('text', { class: 'took', x: Math.min(x + w + 6, width - right + 6), y: y + 15 }, nanos(b.took)),
      );
    }),
  );
  return h(
    'div',
    { class: 'scroll drawing', tabindex: 0, role: 'region', 'aria-label': title },
    svg,
    bars.length > shown.length
      ? h('p', { class: 'note' }, `The first 400 of ${bars.length} rows are drawn; the table has all.`)
      : null,
  );
}

// titleOf describes a bar.
function titleOf(b) {
  const facts = [`took ${nanos(b.took)}`];
  if (b.level !== undefined) facts.push(`level ${b.level}`);
  if (b.why) facts.push(`because: ${b.why}`);
  return `${b.name}\nat ${nanos(Math.round(b.at))}, ${facts.join(', ')}${b.error ? '\n' + b.error : ''}`;
}

function waiting(transactions) {
  const all = transactions.flatMap((t) => t.pending || []);
  if (!all.length) return [];
  return [
    h('h2', {}, 'Waiting'),
    h(
      'ul',
      { class: 'list' },
      all.map((w) => h('li', {}, h('code', {}, w.ref), ' waits for ', h('code', {}, (w.missing || []).join(', ')))),
    ),
  ];
}

customElements.define('weft-event', Event);
