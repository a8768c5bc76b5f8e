// Figures and times as texts.
export const count = (n) => Number(n).toLocaleString('en-GB');

const scaled = (n, units, base) => {
  let i = 0;
  while (n >= base && i < units.length - 1) {
    n /= base;
    i++;
  }
  return (i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)) + ' ' + units[i];
};

export const bits = (bytes) => scaled(bytes * 8, ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s', 'Tbit/s'], 1000);
export const packets = (n) => scaled(n, ['pkt/s', 'kpkt/s', 'Mpkt/s'], 1000);

// seconds reads a duration of the API, such as 0.0012s.
export const seconds = (text) => (text ? parseFloat(text) : 0);
// nanos formats nanoseconds, the unit of complete records.
export function nanos(n) {
  if (!n) return '0';
  if (n < 1e3) return n + ' ns';
  if (n < 1e6) return (n / 1e3).toFixed(n < 1e4 ? 1 : 0) + ' µs';
  if (n < 1e9) return (n / 1e6).toFixed(n < 1e7 ? 1 : 0) + ' ms';
  return (n / 1e9).toFixed(2) + ' s';
}

export const duration = (text) => nanos(Math.round(seconds(text) * 1e9));

const two = (n) => String(n).padStart(2, '0');
export const clock = (d) => `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
// time returns the clock, with the date if it is not today.
export function time(text) {
  if (!text) return '–';
  const d = new Date(text);
  const now = new Date();
  const exact = `${clock(d)}.${String(d.getMilliseconds()).padStart(3, '0')}`;
  if (d.toDateString() === now.toDateString()) return exact;
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${exact}`;
}

export function age(text) {
  if (!text) return '–';
  const t = Math.max(0, (Date.now() - new Date(text)) / 1000);
  if (t < 90) return Math.round(t) + ' s';
  if (t < 5400) return Math.round(t / 60) + ' min';
  if (t < 129600) return Math.round(t / 3600) + ' h';
  return Math.round(t / 86400) + ' d';
}

export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? '' : 's'}`;
export const podOf = (p) => (p && p.name ? `${p.namespace}/${p.name}` : '');
// cut shortens a text to n characters in its middle: names of objects and pods differ at their ends.
export const cut = (text, n) =>
  text.length > n
    ? `${text.slice(0, Math.ceil((n - 1) / 2))}…${text.slice(text.length - Math.floor((n - 1) / 2))}`
    : text;
