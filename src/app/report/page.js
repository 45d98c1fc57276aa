// ---- the rest of the page --------------------------------------------------------------------
function last(s) {
  if (!s) return null;
  for (let i = s.y.length - 1; i >= 0; --i) if (s.y[i] !== null) return s.y[i];
  return null;
}
function summary() {
  const box = el('div', { className: 'runs' });
  D.runs.forEach((run, r) => {
    const t = run.series.train || {}, v = run.series.eval || {};
    const valid = (v.loss || { y: [] }).y.filter((y) => y !== null);
    const facts = [['steps', `${show(run.last_step)} / ${show(run.train_iters)}`],
      ['training loss', show(last(t['loss mean'] || t.loss))],
      ['best validation', valid.length ? show(Math.min(...valid)) : '–'],
      ['samples', show(last(t.consumed_samples))],
      ['samples / s', show(last(t.samples_per_s))],
      ['of matrix rate', t.roof_percent ? show(last(t.roof_percent)) + ' %' : '–'],
      ['data wait', t.data_wait_percent ? show(last(t.data_wait_percent)) + ' %' : '–'],
      ['memory', t.memory_gib ? show(last(t.memory_gib)) + ' GiB' : '–'],
      ['skipped', show(run.events.filter((e) => e.kind === 'skip').length)],
      ['bad samples', show(last(t.bad_samples))]];
    if (run.seconds > 0) facts.push(['time so far', duration(run.seconds)]);
    const swatch = el('span', { className: 'swatch' });
    swatch.style.background = RUN_COLORS[r % RUN_COLORS.length];
    const card = el('div', { className: 'card run' }, el('h3', {}, swatch, run.name),
      el('div', { className: 'path', textContent: run.path }),
      el('div', { className: 'facts' }, ...facts.map(([name, value]) => el('div', {},
        el('b', { textContent: value }), el('span', { textContent: name })))));
    for (const note of run.notes) card.append(el('p', { className: 'note', textContent: note }));
    box.append(card);
  });
  document.getElementById('summary').append(box);
}
function samples() {
  const body = document.querySelector('#samples .body');
  let any = false;
  D.runs.forEach((run) => {
    if (!run.samples.length) return;
    any = true;
    const card = el('div', { className: 'card' }, el('h3', { textContent: run.name }));
    if (run.samples_note) card.append(el('p', { className: 'hint', textContent: run.samples_note }));
    const moving = run.samples.filter((s) => s.items.length);
    if (moving.length) card.append(strip(moving));
    const sheets = run.samples.filter((s) => s.sheet);
    if (sheets.length) {
      const list = el('div', { className: 'sheets' });
      for (const s of sheets) list.append(el('div', { className: 'hint', textContent: 'step ' + show(s.step) }),
        el('img', { src: s.sheet, alt: 'contact sheet of step ' + s.step }));
      const fold = el('details', { open: !moving.length }, el('summary', { textContent: 'Contact sheets' }), list);
      card.append(fold);
    }
    body.append(card);
  });
  if (!any) body.append(el('p', { className: 'none', textContent: 'No samples were drawn.' }));
}
function strip(steps) {  // one row per caption, one column per step
  const grid = el('div', { className: 'strip' });
  grid.style.gridTemplateColumns = `auto repeat(${steps.length}, auto)`;
  grid.append(el('div'), ...steps.map((s) => el('div', { className: 'step', textContent: 'step ' + show(s.step) })));
  const ids = [...new Set(steps.flatMap((s) => s.items.map((i) => i.id)))];
  for (const id of ids) {
    const named = steps.flatMap((s) => s.items).find((i) => i.id === id && i.caption);
    grid.append(el('div', { className: 'caption', textContent: named ? named.caption : id }));
    for (const s of steps) {
      const item = s.items.find((i) => i.id === id);
      if (!item) { grid.append(el('div')); continue; }
      if (item.src.startsWith('data:image')) {
        grid.append(el('img', { className: 'one', src: item.src, alt: item.caption || id }));
        continue;
      }
      const v = el('video', { src: item.src, loop: true, muted: true, autoplay: true, controls: false });
      v.playsInline = true;
      v.onclick = () => { if (v.paused) v.play(); else v.pause(); };
      grid.append(v);
    }
  }
  return grid;
}
function events() {
  const body = document.querySelector('#events .body');
  const all = D.runs.flatMap((run) => run.events.map((e) => [run, e]));
  all.sort((a, b) => a[1].wall - b[1].wall || a[1].step - b[1].step);
  if (!all.length) {
    body.append(el('p', { className: 'none', textContent: 'Nothing is on record.' }));
    return;
  }
  const counts = new Map();
  for (const [, e] of all) counts.set(e.kind, (counts.get(e.kind) || 0) + 1);
  const quiet = all.filter(([, e]) => e.kind !== 'save' && e.kind !== 'sample');
  const rows = (list) => {
    const many = D.runs.length > 1;
    const table = el('table', {}, el('tr', {}, ...[...(many ? ['run'] : []), 'step', 'time (UTC)', 'what', '']
      .map((h) => el('th', { textContent: h }))));
    for (const [run, e] of list) {
      const kind = el('td', { className: 'kind', textContent: e.kind.replace('_', ' ') });
      if (EVENT_COLORS[e.kind]) kind.style.color = EVENT_COLORS[e.kind];
      table.append(el('tr', {}, ...(many ? [el('td', { textContent: run.name })] : []),
        el('td', { className: 'num', textContent: show(e.step) }),
        el('td', { className: 'num', textContent: new Date(e.wall * 1000).toISOString().slice(0, 19).replace('T', ' ') }),
        kind, el('td', { textContent: e.text })));
    }
    return el('div', { className: 'scroll' }, table);
  };
  const card = el('div', { className: 'card' }, el('p', { className: 'hint', textContent:
    [...counts].map(([k, n]) => `${n} × ${k.replace('_', ' ')}`).join(', ') }), rows(quiet.slice(-500)));
  if (quiet.length < all.length) card.append(el('details', {}, el('summary',
    { textContent: 'All, with checkpoints and samples' }), rows(all.slice(-2000))));
  body.append(card);
}
function keysOf(toml) {  // the resolved configuration has one "key = value" a line
  const out = new Map();
  let section = '';
  for (const line of toml.split('\n')) {
    const head = /^\[([^\]]+)\]/.exec(line), pair = /^([\w.-]+)\s*=\s*(.*)$/.exec(line);
    if (head) section = head[1] + '.';
    else if (pair) out.set(section + pair[1], pair[2]);
  }
  return out;
}
function config() {
  const body = document.querySelector('#config .body');
  const maps = D.runs.map((run) => keysOf(run.config));
  if (D.runs.length > 1) {
    const keys = [...new Set(maps.flatMap((m) => [...m.keys()]))];
    const known = maps.filter((m) => m.size);  // a run without the file differs in nothing
    const differ = keys.filter((k) => new Set(known.map((m) => m.get(k))).size > 1);
    const table = el('table', {}, el('tr', {}, el('th', { textContent: 'key' }),
      ...D.runs.map((run) => el('th', { textContent: run.name }))));
    for (const k of differ) table.append(el('tr', { className: 'changed' }, el('td', { textContent: k }),
      ...maps.map((m) => el('td', { textContent: m.has(k) ? m.get(k) : '–' }))));
    body.append(el('div', { className: 'card' }, el('h3', { textContent: 'What differs' }), differ.length ? table :
      el('p', { className: 'none', textContent: 'Nothing: the configurations are equal.' })));
  }
  D.runs.forEach((run) => {
    body.append(el('details', { className: 'card', open: D.runs.length === 1 },
      el('summary', { textContent: run.name }), run.config ? el('pre', { textContent: run.config }) :
        el('p', { className: 'none', textContent: 'There is no config.toml.' })));
  });
}
function environment() {
  const body = document.querySelector('#environment .body');
  const facts = D.runs.map((run) => new Map(run.environment));
  const keys = [...new Set(facts.flatMap((m) => [...m.keys()]))];
  if (!keys.length) {
    body.append(el('p', { className: 'none', textContent: 'Not on record.' }));
    return;
  }
  const table = el('table', {}, el('tr', {}, el('th'), ...D.runs.map((run) => el('th', { textContent: run.name }))));
  for (const k of keys) {
    const row = el('tr', {}, el('th', { textContent: k }), ...facts.map((m) => el('td', { textContent: m.get(k) || '–' })));
    if (new Set(facts.map((m) => m.get(k))).size > 1) row.className = 'changed';
    table.append(row);
  }
  body.append(el('div', { className: 'card' }, table,
    el('p', { className: 'hint', textContent: 'Of the newest start of each run. Page made by ' + D.made_by + '.' })));
}

function wire() {
  const smooth = document.getElementById('smooth');
  smooth.oninput = () => {
    state.smooth = +smooth.value;
    document.getElementById('smooth-value').textContent = state.smooth.toFixed(2);
    drawAll();
  };
  document.getElementById('log').onchange = (e) => { state.log = e.target.checked; drawAll(); };
  document.getElementById('marks').onchange = (e) => { state.marks = e.target.checked; drawAll(); };
  document.getElementById('reset').onclick = () => { state.zoom = null; drawAll(); };
  document.getElementById('theme').onclick = () => {
    root.dataset.theme = dark() ? 'light' : 'dark';
    drawAll();
  };
  let wait = 0;
  window.onresize = () => { cancelAnimationFrame(wait); wait = requestAnimationFrame(drawAll); };
}

// #zoom=100:200&log&smooth=0.6&theme=dark sets the view, for links and screenshots
const wanted = new URLSearchParams(location.hash.slice(1));
root.dataset.theme = wanted.get('theme') ||
  (window.matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
summary();
makeCharts();
samples();
events();
config();
environment();
wire();
if (wanted.has('log')) document.getElementById('log').click();
if (wanted.has('smooth')) {
  document.getElementById('smooth').value = wanted.get('smooth');
  document.getElementById('smooth').oninput();
}
if (wanted.has('zoom')) state.zoom = wanted.get('zoom').split(':').map(Number);
drawAll();
root.dataset.ready = String(charts.length);
