package ui_test

import "time"

// startTimeout is the time in which the browser must start on a busy machine.
const startTimeout = 60 * time.Second

// contrast is a script that returns a line for each text with a contrast below 4.5.
const contrast = `(() => {
  const rgb = (c) => { const m = /rgba?\(([^)]+)\)/.exec(c); if (!m) return null; const p = m[1].split(/[ ,\/]+/).map(Number); return p.length > 3 && p[3] === 0 ? null : p; };
  const light = (c) => { const f = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }; return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c) return c; } return [255, 255, 255]; };
  const low = [];
  for (const e of document.body.querySelectorAll('*')) {
    if (e.closest('svg') || e.closest('.skip') || !e.checkVisibility() || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const a = light(rgb(getComputedStyle(e).color)), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push('contrast ' + ratio.toFixed(2) + ' of ' + e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 40));
  }
  return low.slice(0, 10);
})()`
