// A task as it happens: the market's events move the page; what broke off is taken up again.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const KINDS = ["opened", "announced", "ticked", "last-tick", "settled", "restarted", "signed", "training", "round", "completed", "cancelled"];
  const PAUSE_MS = 1000;
  const RETRY_MS = 3000;
  const QUIET_MS = 5000;
  const DRAWN = 2000;
  let live = document.getElementById("live");
  if (!live) return;
  const task = live.dataset.task;
  let seen = Number(live.dataset.after), source = null, ended = live.dataset.streams !== "1";
  let charts = {}, lost = false;

  // -- the stream ------------------------------------------------------------------------------
  const say = (words, kind) => {
    const link = document.getElementById("link");
    if (link) { link.textContent = words; link.className = `link ${kind}`; }
  };
  const connect = () => {
    if (ended) return;
    source = new EventSource(`/v1/tasks/${task}/stream?after=${seen}`);
    source.onopen = () => {
      say("live", "live");
      if (lost) { lost = false; soon.page(); soon.figures(); soon.evaluate(); }
    };
    source.onerror = () => {
      if (ended) return;
      lost = true;
      say("reconnecting", "lost");
      // The browser comes back by itself, unless the response was not a stream, for example because
      // every event was sent: then the page says whether the task has ended.
      if (source.readyState === EventSource.CLOSED) { soon.page(); setTimeout(connect, RETRY_MS); }
    };
    for (const kind of KINDS) source.addEventListener(kind, (event) => happened(kind, JSON.parse(event.data)));
  };
  window.addEventListener("pagehide", () => source?.close());
  window.addEventListener("pageshow", (event) => { if (event.persisted) connect(); });

  const happened = (kind, event) => {
    if (event.sequence <= seen) return;
    seen = event.sequence;
    if (kind === "round") {
      updates.set(event.body.round + 1, event.body.updates);
      soon.figures();
      soon.evaluate();
      return;
    }
    if (kind === "completed" || kind === "cancelled") end(kind);
    else soon.page();
  };
  const end = (state) => {
    if (ended) return;
    ended = true;
    source?.close();
    say(state, "");
    if (state === "cancelled") { location.reload(); return; }
    soon.page(); soon.figures(); soon.evaluate();
  };

  // Each thing is done at once, and again after a pause where it was asked for meanwhile, or where it
  // failed and no event will ask again.
  const paced = (work) => {
    let busy = false, again = false;
    const run = async () => {
      if (busy) { again = true; return; }
      busy = true;
      const rest = new Promise((done) => setTimeout(done, PAUSE_MS));
      try { await work(); } catch { again = again || ended; }
      await rest;
      busy = false;
      if (again) { again = false; run(); }
    };
    return run;
  };
  const parsed = async (address) => {
    const response = await fetch(address);
    if (!response.ok) throw new Error(response.status);
    return new DOMParser().parseFromString(await response.text(), "text/html");
  };
  const swap = (page, selector) => {
    const now = document.querySelector(selector), next = page.querySelector(selector);
    if (!now || !next) return false;
    const folds = (root) => root.querySelectorAll("details");
    const open = [...folds(now)].map((each) => each.open);
    now.replaceWith(next);
    folds(next).forEach((each, i) => { each.open = open[i] ?? each.open; });
    fillMeters(next);
    return true;
  };
  const soon = {
    figures: paced(async () => {
      draw();
      if (live.dataset.began !== "1") return;
      const page = await parsed(`/tasks/${task}/live`);
      for (const part of ["#live-figures", "#rounds-table"]) swap(page, part);
      const top = document.querySelector("main > .facts > div:last-child b");
      if (top?.textContent.includes(" of ")) top.textContent = `${document.getElementById("rounds-closed").textContent} of ${live.dataset.rounds}`;
    }),
    page: paced(async () => {
      const page = await parsed(location.pathname);
      for (const part of ["main > .page-head", "main > .steps", "main > .facts", "#task-notices"]) swap(page, part);
      // Not while somebody reads or tabs there.
      const parts = ["#buyer-actions", "#owner-actions", "main > .task-card"];
      const busy = parts.filter((part) => document.querySelector(part)?.contains(document.activeElement));
      for (const part of parts) if (!busy.includes(part)) swap(page, part);
      if (live.dataset.began !== "1" && page.getElementById("live")?.dataset.began === "1") {
        swap(page, "#live");
        // What the stream still tells of meanwhile is heard, the end above all.
        live = document.getElementById("live");
        start();
        say(ended ? "completed" : "live", ended ? "" : "live");
      }
      const now = page.getElementById("live")?.dataset;
      if (now?.streams === "0") end(now.state);
      if (ended && busy.length) throw new Error("looked at again once nobody reads there");
    }),
    evaluate: paced(async () => { await measure(); }),
  };

  // -- updates by round ------------------------------------------------------------------------
  // By round: what the page was loaded with, and what came since.
  const updates = new Map();
  const frame = (box, options, data) => {
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const height = 190;
    const made = new uPlot({
      width: box.clientWidth, height, legend: { show: false }, cursor: { show: false }, ...options,
      axes: options.axes.map((each) => ({ ...axis, ...each })),
    }, data, box);
    new ResizeObserver(() => { if (box.clientWidth) made.setSize({ width: box.clientWidth, height }); }).observe(box);
    return made;
  };
  const whole = (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? String(tick) : ""));
  const draw = () => {
    const box = document.querySelector("#updates-chart .plot");
    if (!box || !window.uPlot) return;
    const signed = Number(live.dataset.signed), total = Number(live.dataset.rounds);
    const x = [...updates.keys()].sort((a, b) => a - b).slice(-DRAWN);
    box.parentElement.hidden = !x.length; // no bars, no legend
    if (!x.length) return;
    // Missing updates stand on top of the received ones: both reach up to all who signed.
    const data = [x, x.map(() => signed), x.map((round) => updates.get(round))];
    if (!charts.updates) {
      const bars = uPlot.paths.bars({ size: [0.8, 60] });
      charts.updates = frame(box, {
        scales: { x: { time: false, range: (plot) => { const from = (plot.data[0][0] ?? 1) - 1; return [from + 0.4, Math.max(Math.min(total, from + DRAWN), from + 2) + 0.6]; } }, y: { range: () => [0, Math.max(signed, 1) * 1.08] } },
        axes: [{ values: whole, size: 28, grid: { show: false } }, { values: whole, size: 36 }],
        series: [{}, { paths: bars, fill: colour("--series-2"), stroke: colour("--series-2"), width: 0, points: { show: false } }, { paths: bars, fill: colour("--series-1"), stroke: colour("--series-1"), width: 0, points: { show: false } }],
      }, data);
    } else charts.updates.setData(data);
  };

  // -- how good the model is -------------------------------------------------------------------
  const storage = {
    get: (store, name) => { try { return JSON.parse(store.getItem(`fedbourse ${name} ${task}`)); } catch { return null; } },
    put: (store, name, what) => { try { store.setItem(`fedbourse ${name} ${task}`, JSON.stringify(what)); } catch { /* full: it is chosen again */ } },
  };
  let records = null, points = {};
  const report = (words) => { const line = document.getElementById("records-status"); if (line) line.textContent = words; };
  const cardOf = (box) => ({
    model: box.dataset.model, features: Number(box.dataset.features), classes: Number(box.dataset.classes), layout: JSON.parse(box.dataset.layout),
  });
  const measure = async () => {
    const box = document.getElementById("own-records");
    if (!box || !records) return;
    const response = await fetch(`/tasks/${task}/open-model`, { headers: { Accept: "application/octet-stream" } });
    if (!response.ok) throw new Error(response.status);
    const round = Number(response.headers.get("Fedbourse-Round"));
    points[round] = evaluation.measure(new Float64Array(await response.arrayBuffer()), records, cardOf(box));
    storage.put(localStorage, "evaluated", points);
    drawEvaluated();
  };
  const drawEvaluated = () => {
    const figure = document.getElementById("evaluated");
    const x = Object.keys(points).map(Number).sort((a, b) => a - b);
    if (!figure || !x.length) return;
    figure.hidden = false;
    document.getElementById("evaluated-rows").replaceChildren(...[...x].reverse().map((round) => {
      const row = document.createElement("tr");
      row.innerHTML = "<th scope=row></th><td class=num></td><td class=num></td>";
      row.children[0].textContent = round;
      row.children[1].textContent = `${(100 * points[round].accuracy).toFixed(1)} %`;
      row.children[2].textContent = points[round].loss.toPrecision(4);
      return row;
    }));
    const last = points[x.at(-1)];
    report(`After ${x.at(-1)} rounds: accuracy ${(100 * last.accuracy).toFixed(1)} %, loss ${last.loss.toPrecision(4)}.`);
    // One point makes no curve: the sentence is enough.
    figure.querySelector(".plot").hidden = document.getElementById("evaluated-legend").hidden = x.length < 2;
    if (!window.uPlot || x.length < 2) return;
    const data = [x, x.map((round) => 100 * points[round].accuracy), x.map((round) => points[round].loss)];
    const total = Number(live.dataset.rounds);
    if (!charts.evaluated) {
      charts.evaluated = frame(figure.querySelector(".plot"), {
        scales: { x: { time: false, range: () => [0, total] }, acc: { range: (_, low, high) => [Math.min(low ?? 0, 40), Math.max(high ?? 100, 100)] }, loss: { range: (_, low, high) => [0, (high || 1) * 1.1] } },
        axes: [{ values: whole, size: 28, grid: { show: false } }, { scale: "acc", size: 48, values: (_, ticks) => ticks.map((tick) => `${tick} %`) }, { scale: "loss", side: 1, size: 44, grid: { show: false } }],
        series: [{}, { scale: "acc", stroke: colour("--series-1"), width: 2, points: { show: true, size: 6, fill: colour("--series-1") } }, { scale: "loss", stroke: colour("--series-2"), width: 2, points: { show: true, size: 6, fill: colour("--series-2") } }],
      }, data);
    } else charts.evaluated.setData(data);
  };
  const choose = async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    try {
      records = evaluation.read(await file.text(), cardOf(document.getElementById("own-records")));
    } catch (error) {
      records = null;
      report(`These records cannot be used: ${error.message}.`);
      return;
    }
    report(`${records.labels.length} records`);
    storage.put(sessionStorage, "records", records);
    soon.evaluate();
  };

  const start = () => {
    charts = {};
    const first = Number(live.dataset.first);
    if (live.dataset.updates) live.dataset.updates.split(",").forEach((count, i) => updates.set(first + i + 1, Number(count)));
    draw();
    if (!document.getElementById("own-records")) return;
    document.getElementById("records").addEventListener("change", choose);
    points = storage.get(localStorage, "evaluated") ?? {};
    records = storage.get(sessionStorage, "records");
    drawEvaluated();
    if (records) soon.evaluate();
  };
  start();
  connect();
  // Before training, owners join and reply without an event of their own.
  setInterval(() => { if (!ended && !document.hidden && live.dataset.began !== "1") soon.page(); }, QUIET_MS);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const each of Object.values(charts)) each.destroy();
    charts = {};
    draw(); drawEvaluated();
  });
});
