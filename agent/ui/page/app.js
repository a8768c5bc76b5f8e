import { h, rove, announce } from './dom.js';
import { read, exchange, every } from './api.js';
import { count } from './format.js';
import './topology.js';
import './events.js';
import './event.js';
import './objects.js';
import './addresses.js';
import './drops.js';

const views = [
  ['topology', 'Topology'], ['events', 'Events'], ['objects', 'Objects'], ['addresses', 'Addresses'], ['drops', 'Drops'],
];
const main = document.getElementById('main');
const nav = document.getElementById('views');

function showNavigation(current) {
  nav.replaceChildren(...views.map(([name, title]) =>
    h('a', { href: '#/' + name, 'aria-current': name === current ? 'page' : null }, title)));
  rove(nav, 'a');
}

let shown = '';
function route() {
  const [path, query] = location.hash.slice(2).split('?');
  let name = path || 'topology';
  if (name !== 'event' && !views.some(([v]) => v === name)) name = 'topology';
  const title = name === 'event' ? 'Event' : views.find(([v]) => v === name)[1];
  const had = nav.contains(document.activeElement);
  showNavigation(name === 'event' ? 'events' : name);
  if (had) nav.querySelector('[aria-current]').focus();
  document.title = title + ' · Weft';
  const view = document.createElement('weft-' + name);
  view.parameters = new URLSearchParams(query || '');
  main.replaceChildren(view);
  if (shown && shown !== name) announce(title);
  shown = name;
  if (shown === 'event') main.focus({ preventScroll: true });
}

const readiness = document.getElementById('readiness');
const conditions = document.getElementById('conditions');
let last = '';
async function showState() {
  let state, text;
  try {
    state = await read('state');
    const bad = state.conditions.filter((c) => !c.ok).length;
    text = (state.ready ? 'ready' : 'not ready') + (bad ? `, ${count(bad)} of ${state.conditions.length} conditions not met` : '');
  } catch (e) {
    text = e.message;
  }
  const key = text + JSON.stringify(state ? state.conditions : '');
  if (key === last) return;
  last = key;
  const tone = !state ? 'bad' : !state.ready ? 'bad' : state.conditions.every((c) => c.ok) ? 'good' : 'warn';
  const opened = !conditions.hidden;
  readiness.replaceChildren(h('button', { class: 'chip ' + tone, 'aria-expanded': opened, 'aria-controls': 'conditions', onclick: toggle },
    h('span', { class: 'dot', 'aria-hidden': 'true' }), text));
  conditions.replaceChildren(...(state ? [
    h('p', { class: 'facts' }, `weft-agent ${state.version} · dataplane ${state.dataplane || '–'}`),
    h('ul', {}, state.conditions.map((c) => h('li', { class: c.ok ? 'good' : 'bad' },
      h('span', { class: 'mark', 'aria-hidden': 'true' }, c.ok ? '✓' : '✕'), h('b', {}, c.name), h('span', { class: 'sr' }, c.ok ? ' holds ' : ' does not hold '), h('span', { class: 'message' }, c.message || '')))),
  ] : [h('p', {}, text)]));
}
function toggle(e) {
  conditions.hidden = !conditions.hidden;
  e.currentTarget.setAttribute('aria-expanded', String(!conditions.hidden));
}

document.getElementById('skip').addEventListener('click', (e) => { e.preventDefault(); main.focus(); });
await exchange();
addEventListener('hashchange', route);
route();
every(readiness, 3000, showState);
