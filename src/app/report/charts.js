'use strict';
// Draws the report from the JSON in #data. No network, no library. When everything is drawn, the
// root element gets data-ready="<charts>"; an error gives it data-error.
const root = document.documentElement;
window.addEventListener('error', (e) => { root.dataset.error = e.message; });

const D = JSON.parse(document.getElementById('data').textContent);
const RUN_COLORS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9', '#8c6d31'];
const RUN_COLORS_DARK = ['#5ab0f0', '#ff9248', '#3fd0a4', '#eb9fca', '#f2b632', '#8fd3f5', '#c9a86a'];
// Okabe and Ito's colours tell a few names apart, a ramp from violet to yellow keeps bins in order.
const RAMP = [[72, 36, 117], [65, 68, 135], [53, 95, 141], [42, 120, 142], [33, 145, 140],
  [34, 168, 132], [68, 191, 112], [122, 209, 81], [189, 196, 38], [224, 170, 20]];
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
const EVENT_COLORS = { skip: '#d98200', rollback: '#c4372b', resume: '#2e8b57', bad_sample: '#a05fc4',
  signal: '#8a8f98', warning: '#d98200', end: '#8a8f98' };
const state = { smooth: 0, log: false, marks: true, zoom: null };

const dark = () => root.dataset.theme === 'dark';
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const runColor = (i) => (dark() ? RUN_COLORS_DARK : RUN_COLORS)[i % RUN_COLORS.length];
const rampColor = (i, n) => {
  const at = n > 1 ? i / (n - 1) * (RAMP.length - 1) : 3, k = Math.min(RAMP.length - 2, Math.floor(at));
  const lift = dark() ? 34 : 0;
  return 'rgb(' + RAMP[k].map((c, j) => Math.min(255, lift + Math.round(
      c + (RAMP[k + 1][j] - c) * (at - k)))).join(',') + ')';
};
function el(tag, props, ...children) {
  const e = Object.assign(document.createElement(tag), props || {});
  e.append(...children);
  return e;
}
function show(v) {
  if (v === null || v === undefined) return '–';
  const a = Math.abs(v);
  if (v === 0) return '0';
  if (Number.isInteger(v) && a < 1e9) return v.toLocaleString('en');
  return a >= 1e5 || a < 1e-3 ? v.toExponential(3) : String(+v.toPrecision(4));
}
function duration(s) {
  const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  return h > 0 ? `${h} h ${m} min` : m > 0 ? `${m} min ${Math.round(s % 60)} s` : `${s.toFixed(1)} s`;
}

// ---- what is drawn ---------------------------------------------------------------------------
// A chart: title, unit of y, and lines {run, kind, key, label}; those without data drop out.
const CHARTS = [
  { title: 'Loss', unit: 'mean squared error', log: true, keys: [['train', 'loss mean', 'training']],
    orElse: [['train', 'loss', 'training']] },
  { title: 'Validation loss', unit: 'mean squared error', log: true, mix: true,
    keys: [['eval', 'loss', 'weights']], match: ['eval', /^loss ema (.*)$/, 'EMA '] },
  { title: 'Validation loss by timestep quantile', unit: 'mean squared error', log: true, ramp: true,
    match: ['eval', /^loss q(\d+)$/, 'quantile '] },
  { title: 'Loss by timestep / 1000', unit: 'mean squared error', log: true, ramp: true,
    match: ['train', /^loss\/t_(.*)$/, ''] },
  { title: 'Loss by bucket', unit: 'mean squared error', log: true, mix: true,
    match: ['train', /^loss\/bucket\/(.*)$/, ''] },
  { title: 'Loss by data set', unit: 'mean squared error', log: true, mix: true,
    match: ['train', /^loss\/data\/(.*)$/, ''] },
  { title: 'Gradient norm', unit: 'before clipping', log: true, keys: [['train', 'grad_norm', '']] },
  { title: 'Learning rate', unit: 'per step', keys: [['train', 'lr', '']] },
  { title: 'Throughput', unit: 'samples / s', keys: [['train', 'samples_per_s', '']] },
  { title: 'Tokens', unit: 'tokens / s', keys: [['train', 'tokens_per_s', '']] },
  { title: 'Step time', unit: 'ms', keys: [['train', 'step_ms', '']] },
  { title: 'Share of the machine\'s matrix rate', unit: '%', keys: [['train', 'roof_percent', '']] },
  { title: 'Waiting for data', unit: '% of wall time', keys: [['train', 'data_wait_percent', '']] },
  { title: 'Memory', unit: 'GiB resident', keys: [['train', 'memory_gib', '']] },
  { title: 'Global batch size', unit: 'samples', keys: [['train', 'global_batch_size', '']],
    onlyVaried: true },
  { title: 'Samples consumed by data set', unit: 'samples', mix: true,
    match: ['train', /^consumed\/data\/(.*)$/, ''], onlyMany: true },
  { title: 'Skipped steps', unit: 'per log interval', keys: [['train', 'skipped_iters', 'skipped'],
    ['train', 'nan_iters', 'not finite']], mix: true, onlyVaried: true },
  { title: 'Bad samples', unit: 'replaced so far', keys: [['train', 'bad_samples', '']],
    onlyVaried: true },
];
const KNOWN = /^(consumed_samples|tflops|seconds_left|eval_samples|loss)$/;

function linesOf(chart, seen) {
  const lines = [];
  const names = new Set();
  D.runs.forEach((run, r) => {
    const add = (kind, key, label) => {
      const s = (run.series[kind] || {})[key];
      seen.add(kind + ' ' + key);
      if (s && s.x.length) { lines.push({ run: r, kind, key, label, s }); names.add(label); }
    };
    const before = lines.length;
    (chart.keys || []).forEach((k) => add(...k));
    if (lines.length === before) (chart.orElse || []).forEach((k) => add(...k));
    if (chart.match) {
      const [kind, pattern, prefix] = chart.match;
      Object.keys(run.series[kind] || {}).filter((k) => pattern.test(k))
        .sort((a, b) => a.localeCompare(b, 'en', { numeric: true }))
        .forEach((k) => add(kind, k, prefix + pattern.exec(k)[1]));
    }
  });
  const order = [...names];
  const many = D.runs.length > 1;
  for (const line of lines) {
    const i = order.indexOf(line.label), n = order.length;
    line.color = () => chart.ramp ? rampColor(i, n) : chart.mix && n > 1 ?
      runColor(many ? line.run : i) : runColor(line.run);
    line.dash = chart.ramp ? DASHES[line.run % 4] : chart.mix && many ? DASHES[i % 4] : [];
    line.name = [many ? D.runs[line.run].name : '', line.label].filter(Boolean).join(' · ') || 'run';
    line.on = true;
  }
  if (chart.onlyMany && order.length < 2) return [];
  if (chart.onlyVaried && !lines.some((l) => l.s.y.some((v) => v !== l.s.y[0]))) return [];
  return lines;
}

// ---- one chart -------------------------------------------------------------------------------
function smoothed(y, weight) {  // exponential mean, corrected for its start; gaps stay gaps
  if (weight <= 0) return y;
  let mean = 0, mass = 0;
  return y.map((v) => {
    if (v === null) return null;
    mean = weight * mean + (1 - weight) * v;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  });
}
function niceStep(span, count) {
  const rough = span / count, p = 10 ** Math.floor(Math.log10(rough)), m = rough / p;
  return p * (m <= 1 ? 1 : m <= 2 ? 2 : m <= 5 ? 5 : 10);
}
function ticks(lo, hi, log, count) {
  if (!log) {
    const step = niceStep(hi - lo, count), out = [];
    for (let k = Math.ceil(lo / step - 1e-9); k * step <= hi + step * 1e-9 && out.length < 50; ++k) {
      out.push(k * step);
    }
    return out;
  }
  const decades = Math.log10(hi / lo), out = [];
  const digits = decades < 0.5 ? null : decades < 1.2 ? [1, 2, 3, 5, 7] : decades < 3 ? [1, 2, 5] : [1];
  if (!digits) return ticks(lo, hi, false, count);
  for (let e = Math.floor(Math.log10(lo)); e <= Math.ceil(Math.log10(hi)); ++e) {
    for (const d of digits) { const v = d * 10 ** e; if (v >= lo && v <= hi) out.push(v); }
  }
  return out;
}
function tickLabel(v) {
  const a = Math.abs(v);
  if (v === 0) return '0';
  if (a >= 1e9) return +(v / 1e9).toPrecision(4) + 'G';
  if (a >= 1e6) return +(v / 1e6).toPrecision(4) + 'M';
  if (a >= 1e4) return +(v / 1e3).toPrecision(4) + 'k';
  return a < 1e-3 ? (+v.toPrecision(4)).toExponential().replace('e-', 'e−') : String(+v.toPrecision(4));
}

class Chart {
  constructor(spec, lines) {
    Object.assign(this, { spec, lines, log: false, drag: null, hover: null });
    this.canvas = el('canvas');
    this.logButton = el('button', { type: 'button', textContent: 'log', title: 'logarithmic axis' });
    this.logButton.onclick = () => { this.log = !this.log; this.draw(); };
    this.legend = el('div', { className: 'legend' });
    this.box = el('div', { className: 'card chart' }, el('div', { className: 'top' },
      el('h3', { textContent: spec.title }),
      el('span', { className: 'unit', textContent: spec.unit }), this.logButton), this.canvas,
      this.legend);
    this.canvas.setAttribute('role', 'img');
    this.canvas.setAttribute('aria-label', spec.title + ' over steps');
    this.canvas.onpointerdown = (e) => { this.drag = [e.offsetX, e.offsetX];
      this.canvas.setPointerCapture(e.pointerId); };
    this.canvas.onpointermove = (e) => this.move(e);
    this.canvas.onpointerup = () => this.drop();
    this.canvas.onpointerleave = () => { this.hover = null; document.getElementById('tip').hidden = true;
      this.draw(); };
    this.canvas.ondblclick = () => { state.zoom = null; drawAll(); };
  }
  drop() {
    const d = this.drag;
    this.drag = null;
    if (d && Math.abs(d[1] - d[0]) > 6) {
      state.zoom = [this.stepAt(Math.min(...d)), this.stepAt(Math.max(...d))];
      drawAll();
    }
  }
  move(e) {
    if (this.drag) this.drag[1] = e.offsetX;
    this.hover = this.stepAt(e.offsetX);
    this.draw();
    this.readOut(e);
  }
  readOut(e) {
    const tip = document.getElementById('tip');
    const rows = [];
    let step = null;
    for (const l of this.lines) {
      if (!l.on) continue;
      const i = nearest(l.s.x, this.hover);
      if (i < 0) continue;
      if (step === null || Math.abs(l.s.x[i] - this.hover) < Math.abs(step - this.hover)) step = l.s.x[i];
      rows.push([l, i]);
    }
    if (step === null) { tip.hidden = true; return; }
    const table = el('table');
    for (const [l, i] of rows) {
      if (l.s.x[i] !== step) continue;
      const dot = el('span', { className: 'swatch' });
      dot.style.background = l.color();
      table.append(el('tr', {}, el('td', {}, dot), el('td', { textContent: l.name }),
        el('td', { textContent: l.s.y[i] === null ? 'not finite' : show(l.s.y[i]) })));
    }
    tip.replaceChildren(el('div', { textContent: 'step ' + show(step) }), table);
    const reach = (this.x1 - this.x0) * 6 / Math.max(1, this.right - this.left);
    for (const [r, ev] of markedEvents()) {
      if (Math.abs(ev.step - this.hover) > reach) continue;
      const line = el('div', { textContent: `${ev.kind} at ${show(ev.step)}` +
        (D.runs.length > 1 ? ` (${D.runs[r].name})` : '') + (ev.text ? ': ' + ev.text : '') });
      line.style.color = EVENT_COLORS[ev.kind];
      tip.append(line);
    }
    tip.hidden = false;
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = Math.max(4, e.clientX + 16 + w > innerWidth ? e.clientX - w - 16 : e.clientX + 16) + 'px';
    tip.style.top = Math.max(4, Math.min(e.clientY + 12, innerHeight - h - 8)) + 'px';
  }
  stepAt(px) {
    const t = (px - this.left) / Math.max(1, this.right - this.left);
    return this.x0 + Math.min(1, Math.max(0, t)) * (this.x1 - this.x0);
  }
  limits() {
    const all = xRange();
    [this.x0, this.x1] = state.zoom || all;
    let lo = Infinity, hi = -Infinity;
    const log = this.logNow();
    for (const l of this.lines) {
      if (!l.on) continue;
      l.shown = smoothed(l.s.y, l.kind === 'train' ? state.smooth : 0);
      l.s.x.forEach((x, i) => {
        const v = l.shown[i];
        if (v === null || x < this.x0 || x > this.x1 || (log && v <= 0)) return;
        lo = Math.min(lo, v);
        hi = Math.max(hi, v);
      });
    }
    if (!(lo <= hi)) { lo = log ? 0.1 : 0; hi = 1; }
    // a constant, also one that smoothing rounded: ticks between neighbours would never end
    if (hi - lo <= 1e-9 * Math.max(Math.abs(lo), Math.abs(hi))) { const pad = Math.abs(lo) * 0.1 || 1; lo -= log ? lo / 10 : lo === 0 ? 0 : pad; hi += pad; }
    if (log) { const m = (hi / lo) ** 0.06; return [lo / m, hi * m]; }
    const pad = 0.06 * (hi - lo);
    return [lo >= 0 && lo - pad < 0 ? 0 : lo - pad, hi + pad];
  }
  logNow() { return this.log !== (state.log && !!this.spec.log); }
  draw() {
    const c = this.canvas, ratio = window.devicePixelRatio || 1;
    const W = c.clientWidth, H = c.clientHeight;
    c.width = Math.round(W * ratio);
    c.height = Math.round(H * ratio);
    const g = c.getContext('2d');
    g.scale(ratio, ratio);
    g.font = '11.5px system-ui, "Segoe UI", Roboto, Arial, sans-serif';
    const log = this.logNow();
    this.logButton.setAttribute('aria-pressed', log);
    const [y0, y1] = this.limits();
    const yt = ticks(y0, y1, log, 5);
    this.left = 14 + Math.max(24, ...yt.map((v) => g.measureText(tickLabel(v)).width));
    this.right = W - 24;
    const top = 10, bottom = H - 36;
    const fy = log ? (v) => bottom - Math.log(v / y0) / Math.log(y1 / y0) * (bottom - top) :
      (v) => bottom - (v - y0) / (y1 - y0) * (bottom - top);
    const fx = (x) => this.left + (x - this.x0) / (this.x1 - this.x0) * (this.right - this.left);
    this.axes(g, yt, fx, fy, top, bottom, H);
    g.save();
    g.beginPath();
    g.rect(this.left, top - 4, this.right - this.left, bottom - top + 8);
    g.clip();
    if (state.marks) this.marks(g, fx, top, bottom);
    for (const l of this.lines) if (l.on) this.line(g, l, fx, fy, log);
    if (this.drag) {
      g.fillStyle = css('--accent');
      g.globalAlpha = 0.15;
      g.fillRect(this.drag[0], top, this.drag[1] - this.drag[0], bottom - top);
      g.globalAlpha = 1;
    } else if (this.hover !== null) {
      g.strokeStyle = css('--faint');
      g.globalAlpha = 0.6;
      g.beginPath();
      g.moveTo(fx(this.hover), top);
      g.lineTo(fx(this.hover), bottom);
      g.stroke();
    }
    g.restore();
  }
  axes(g, yt, fx, fy, top, bottom, H) {
    g.strokeStyle = css('--grid');
    g.fillStyle = css('--faint');
    g.lineWidth = 1;
    g.textAlign = 'right';
    g.textBaseline = 'middle';
    for (const v of yt) {
      const y = Math.round(fy(v)) + 0.5;
      g.beginPath();
      g.moveTo(this.left, y);
      g.lineTo(this.right, y);
      g.stroke();
      g.fillText(tickLabel(v), this.left - 6, y);
    }
    g.textAlign = 'center';
    g.textBaseline = 'top';
    const xt = ticks(this.x0, this.x1, false, Math.max(2, (this.right - this.left) / 90));
    for (const v of xt.filter(Number.isInteger)) {
      g.fillRect(Math.round(fx(v)), bottom, 1, 4);
      g.fillText(tickLabel(v), fx(v), bottom + 6);
    }
    g.fillText('step', (this.left + this.right) / 2, H - 14);
    g.strokeStyle = css('--line');
    g.strokeRect(this.left + 0.5, top + 0.5, this.right - this.left - 1, bottom - top - 1);
  }
  marks(g, fx, top, bottom) {
    for (const [, e] of markedEvents()) {
      if (e.step < this.x0 || e.step > this.x1) continue;
      g.strokeStyle = g.fillStyle = EVENT_COLORS[e.kind];
      g.globalAlpha = 0.75;
      g.setLineDash([4, 3]);
      g.beginPath();
      g.moveTo(fx(e.step), top);
      g.lineTo(fx(e.step), bottom);
      g.stroke();
      g.setLineDash([]);
      g.beginPath();
      g.moveTo(fx(e.step) - 4, top);
      g.lineTo(fx(e.step) + 4, top);
      g.lineTo(fx(e.step), top + 7);
      g.fill();
    }
    g.globalAlpha = 1;
  }
  line(g, l, fx, fy, log) {
    const stroke = (y, width, alpha) => {
      g.strokeStyle = g.fillStyle = l.color();
      g.lineWidth = width;
      g.globalAlpha = alpha;
      g.lineJoin = 'round';
      g.setLineDash(l.dash);
      let pen = false, points = 0;
      g.beginPath();
      l.s.x.forEach((x, i) => {
        if (y[i] === null || (log && y[i] <= 0)) { pen = false; return; }
        if (pen) g.lineTo(fx(x), fy(y[i])); else g.moveTo(fx(x), fy(y[i]));
        pen = true;
        if (x >= this.x0 && x <= this.x1) ++points;
      });
      g.stroke();
      g.setLineDash([]);
      if (points > 40) return;
      l.s.x.forEach((x, i) => {
        if (y[i] === null || (log && y[i] <= 0)) return;
        g.beginPath();
        g.arc(fx(x), fy(y[i]), width + 0.7, 0, 7);
        g.fill();
      });
    };
    if (l.shown !== l.s.y) stroke(l.s.y, 1, 0.22);
    stroke(l.shown, 1.8, 1);
    g.globalAlpha = 1;
  }
  names() {
    this.legend.replaceChildren(...this.lines.map((l) => {
      const b = el('button', { type: 'button' });
      b.setAttribute('aria-pressed', l.on);
      b.innerHTML = `<svg width="22" height="8"><line x1="1" y1="4" x2="21" y2="4" stroke="${l.color()}"` +
        ` stroke-width="2.4" stroke-dasharray="${l.dash.join(' ')}"/></svg>`;
      b.append(l.name);
      b.onclick = () => { l.on = !l.on; this.names(); this.draw(); };
      return b;
    }));
  }
}
function nearest(xs, x) {
  let lo = 0, hi = xs.length - 1;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (xs[mid] < x) lo = mid + 1; else hi = mid; }
  if (lo > 0 && Math.abs(xs[lo - 1] - x) <= Math.abs(xs[lo] - x)) --lo;
  return xs.length ? lo : -1;
}
function xRange() {
  let lo = Infinity, hi = -Infinity;
  for (const run of D.runs) for (const kind in run.series) for (const key in run.series[kind]) {
    const x = run.series[kind][key].x;
    if (x.length) { lo = Math.min(lo, x[0]); hi = Math.max(hi, x[x.length - 1]); }
  }
  return lo < hi ? [lo, hi] : lo === hi ? [lo - 1, hi + 1] : [0, 1];
}
const MARKED = new Set(['skip', 'rollback', 'resume', 'bad_sample', 'signal', 'warning']);
let marked = null;
function markedEvents() {
  if (!marked) marked = D.runs.flatMap((run, r) => run.events.filter((e) => MARKED.has(e.kind)).map((e) => [r, e]));
  return marked;
}

let charts = [];
function drawAll() { charts.forEach((c) => { c.names(); c.draw(); }); }
function makeCharts() {
  const seen = new Set();
  charts = CHARTS.map((spec) => [spec, linesOf(spec, seen)]).filter(([, l]) => l.length)
    .map(([spec, lines]) => new Chart(spec, lines));
  const rest = new Map();  // values this page has no chart for get one of their own
  for (const run of D.runs) for (const kind in run.series) for (const key in run.series[kind]) {
    if (!seen.has(kind + ' ' + key) && !KNOWN.test(key)) rest.set(kind + ' ' + key, [kind, key]);
  }
  for (const [kind, key] of rest.values()) {
    const spec = { title: key, unit: kind === 'eval' ? 'validation' : '', keys: [[kind, key, '']] };
    charts.push(new Chart(spec, linesOf(spec, seen)));
  }
  document.getElementById('charts').append(...charts.map((c) => c.box));
  if (!charts.length) document.getElementById('charts').append(
    el('p', { className: 'none', textContent: 'No rows yet: nothing has been logged.' }));
}
