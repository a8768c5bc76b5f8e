// Requests to the agent that served this page. Nothing else is contacted.
//
// A stopped agent accepts connections and does not answer, so each request has a time limit.
const patience = 5000; // milliseconds
export async function read(path, parameters) {
  const query = new URLSearchParams(parameters || {}).toString();
  let reply, text;
  try {
    reply = await fetch('/api/' + path + (query ? '?' + query : ''), {
      credentials: 'same-origin',
      cache: 'no-store',
      signal: AbortSignal.timeout(patience),
    });
    text = await reply.text();
  } catch (e) {
    throw new Error(
      e.name === 'TimeoutError'
        ? `The agent does not answer within ${patience / 1000} s.`
        : 'The agent does not answer; it may be restarting.',
    );
  }
  let document;
  try {
    document = JSON.parse(text);
  } catch {
    document = { error: text.trim() || reply.statusText };
  }
  if (!reply.ok) throw new Error(document.error || reply.statusText);
  return document;
}

// exchange replaces the token of the URL by a session cookie, and removes the token from the address bar and the
// history.
export async function exchange() {
  const token = location.hash.slice(1);
  if (!token || token.startsWith('/') || token === 'main') return;
  history.replaceState(null, '', location.pathname + '#/topology');
  await fetch('/session', { headers: { Authorization: 'Bearer ' + token }, cache: 'no-store' });
}

// every calls work now and then at each interval while the element is connected and the page is visible.
export function every(element, milliseconds, work) {
  let timer;
  const run = async () => {
    clearTimeout(timer);
    if (!element.isConnected) return;
    if (!document.hidden) await work();
    if (element.isConnected) timer = setTimeout(run, milliseconds);
  };
  run();
  return run;
}

// Rates keeps two readings of the counters, and returns the rates between them.
export class Rates {
  constructor() {
    this.before = null;
    this.now = null;
  }

  add(reply) {
    this.before = this.now;
    this.now = { at: performance.now(), reply, map: index(reply) };
  }

  get interfaces() {
    return this.now ? this.now.reply.interfaces : [];
  }

  get errors() {
    return this.now ? this.now.reply.errors : [];
  }

  get elapsed() {
    return this.before ? (this.now.at - this.before.at) / 1000 : 0;
  }

  // of returns the rate of a field, per second; null before the second reading.
  of(key, field) {
    if (!this.before) return null;
    const a = this.before.map.get(key);
    const b = this.now.map.get(key);
    if (!b) return null;
    return Math.max(0, (b[field] - (a ? a[field] : b[field])) / this.elapsed);
  }
}

export const keyOf = (i) => `${i.attachment.network}/${i.attachment.containerId}/${i.attachment.ifName}/${i.interface}`;
const index = (reply) => {
  const map = new Map();
  for (const i of reply.interfaces) map.set(keyOf(i), i);
  for (const e of reply.errors) map.set(e.node + '|' + e.reason, e);
  return map;
};
