import { h, rove, announce } from './dom.js';
import { read, exchange, every } from './api.js';
import { count, clock } from './format.js';
import './topology.js';
import './events.js';
import './event.js';
import './objects.js';
import './pod.js';
import './addresses.js';
import './drops.js';

const views = [
  ['topology', 'Topology'],
  ['events', 'Events'],
  ['objects', 'Objects'],
  ['addresses', 'Addresses'],
  ['drops', 'Drops'],
];
const main = document.getElementById('main');
const nav = document.getElementById('views');

function showNavigation(current) {
  nav.replaceChildren(
    ...views.map(([name, title]) =>
      h('a', { href: '#/' + name, 'aria-current': name === current ? 'page' : null }, title),
    ),
  );
  rove(nav, 'a');
}

// details are the views of one thing, with the view that leads to it.
const details = { event: ['Event', 'events'], pod: ['Pod', 'topology'] };

let shown = '';
let title = '';
let node = '';
function showTitle() {
  document.title = [title, node, 'Weft'].filter(Boolean).join(' · ');
}

function route() {
  const [path, query] = location.hash.slice(2).split('?');
  let name = path || 'topology';
  if (!details[name] && !views.some(([v]) => v === name)) name = 'topology';
  title = details[name] ? details[name][0] : views.find(([v]) => v === name)[1];
  const had = nav.contains(document.activeElement);
  showNavigation(details[name] ? details[name][1] : name);
  if (had) nav.querySelector('[aria-current]').focus();
  showTitle();
  const view = document.createElement('weft-' + name);
  view.parameters = new URLSearchParams(query || '');
  main.replaceChildren(view);
  if (shown && shown !== name) announce(title);
  shown = name;
  if (details[shown]) main.focus({ preventScroll: true });
}

const readiness = document.getElementById('readiness');
const conditions = document.getElementById('conditions');
let last = '';
async function showState() {
  let state, text;
  try {
    state = await read('state');
    node = state.node;
    showTitle();
    document.getElementById('node').textContent = node;
    document.getElementById('as-of').textContent = 'as of ' + clock(new Date());
    const bad = state.conditions.filter((c) => !c.ok).length;
    text =
      (state.ready ? 'ready' : 'not ready') +
      (bad ? `, ${count(bad)} of ${state.conditions.length} conditions not ok` : '');
  } catch (e) {
    text = e.message;
  }
  document.body.classList.toggle('stale', !state); // what is shown is of the time in the header
  document.dispatchEvent(new CustomEvent('answered', { detail: Boolean(state) }));
  const key = text + JSON.stringify(state ? state.conditions : '');
  if (key === last) return;
  last = key;
  const tone = !state ? 'bad' : !state.ready ? 'bad' : state.conditions.every((c) => c.ok) ? 'good' : 'warn';
  const opened = !conditions.hidden;
  readiness.replaceChildren(
    h(
      'button',
      { class: 'chip ' + tone, 'aria-expanded': opened, 'aria-controls': 'conditions', onclick: toggle },
      h('span', { class: 'dot', 'aria-hidden': 'true' }),
      text,
    ),
  );
  conditions.replaceChildren(
    ...(state
      ? [
          h('p', { class: 'facts' }, `weft-agent ${state.version} · dataplane ${state.dataplane || '–'}`),
          h(
            'ul',
            {},
            state.conditions.map((c) =>
              h(
                'li',
                { class: c.ok ? 'good' : 'bad' },
                h('span', { class: 'mark', 'aria-hidden': 'true' }, c.ok ? '✓' : '✕'),
                h('b', {}, c.name),
                h('span', {}, c.ok ? 'ok' : 'not ok'),
                h('span', { class: 'message' }, c.message || ''),
              ),
            ),
          ),
        ]
      : [h('p', {}, text)]),
  );
}

function toggle(e) {
  conditions.hidden = !conditions.hidden;
  e.currentTarget.setAttribute('aria-expanded', String(!conditions.hidden));
}

document.getElementById('skip').addEventListener('click', (e) => {
  e.preventDefault();
  main.focus();
});
await exchange();
addEventListener('hashchange', route);
route();
every(readiness, 3000, showState);
