// The owner's calculator. It reads the task from data attributes and the owner from inputs that
// stand in no form; it asks the server nothing and stores nothing.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const { reply, pay, othersAt, othersAmong, epsilonCurve, budgetWithin } = globalThis.earnings;
  const box = document.getElementById("earn");
  const by = (id) => document.getElementById(id);
  const optional = (text) => (text === "" ? null : Number(text));
  const task = {
    reward: optional(box.dataset.reward),
    total: optional(box.dataset.total),
    owners: Number(box.dataset.owners),
    low: optional(box.dataset.low),
    high: optional(box.dataset.high),
    rounds: Number(box.dataset.rounds),
    samples: Number(box.dataset.samples),
    maxRho: Number(box.dataset.maxRho),
  };
  const epsilonOf = epsilonCurve({
    low: Number(box.dataset.epsilonLow),
    high: Number(box.dataset.epsilonHigh),
    delta: Number(box.dataset.delta),
    epsilons: box.dataset.epsilons.split(" ").map(Number),
  });
  const POINTS = 240;
  const ROWS = 12;
  const LEAST = 1e-12; // beyond these the formulas would leave the doubles
  const MOST = 1e12;
  let chosen = null; // null follows the best reply

  const figure = (number, digits = 4) => {
    if (number === 0) return "0";
    const size = Math.abs(number);
    if (size < 1e-4 || size >= 1e12) return number.toExponential(digits - 1);
    return number.toLocaleString("en-GB", { maximumSignificantDigits: digits });
  };
  // As privacy/loss.py shows it: rounded up, for it is a promise.
  const loss = (epsilon) => {
    if (epsilon === 0) return "0";
    if (epsilon < 100) return (Math.ceil(epsilon * 1000) / 1000).toFixed(3);
    return epsilon < 1e15 ? Math.ceil(epsilon).toLocaleString("en-GB") : (1.001 * epsilon).toExponential(3);
  };
  const percent = (share) => `${figure(100 * share, 3)} %`;

  // A number that somebody typed, or null with a sentence below the field.
  const typed = (id, what, { zero = false } = {}) => {
    const input = by(id);
    const number = input.value.trim() === "" ? NaN : Number(input.value);
    const most = id === "reward" && input.max !== "" ? Math.min(Number(input.max), MOST) : MOST;
    const words = !Number.isFinite(number) || number < 0 || (number === 0 && !zero)
      ? `${what} must be a number ${zero ? "of 0 or more" : "above 0"}.`
      : number > most ? `${what} is too large: at most ${most.toLocaleString("en-GB", { maximumSignificantDigits: 12 })} can be tried.`
      : number < LEAST && !zero ? `${what} is too small: it must be at least ${LEAST}.` : "";
    const right = words === "";
    if (right) input.removeAttribute("aria-invalid");
    else input.setAttribute("aria-invalid", "true");
    input.closest(".field").classList.toggle("wrong", !right);
    by(`${id}-error`).textContent = words;
    return right ? number : null;
  };

  const read = () => {
    const value = typed("value", "What privacy is worth to you");
    const cap = typed("cap", "The cap");
    const used = typed("used", "What is used", { zero: true });
    const reward = task.reward ?? typed("reward", "The reward");
    if ([value, cap, used, reward].includes(null)) return null;
    const capRho = by("cap-unit").value === "rho" ? cap : budgetWithin(cap, epsilonOf);
    const others = task.total !== null ? othersAt(value, task.total, reward) : othersAmong(value, task, reward);
    const most = Math.min(task.maxRho, Math.max(0, capRho - used));
    const wanted = reply(value, others, reward);
    return { value, capRho, used, reward, others, most, wanted, best: Math.min(wanted, most) };
  };

  const choice = (owner, budget) => {
    const earned = pay(budget, owner.others, owner.reward);
    return { budget, earned, epsilon: epsilonOf(budget), whole: epsilonOf(budget * task.samples ** 2), share: budget / owner.capRho, gain: earned - owner.value * budget };
  };

  const top = (owner) => Math.min(owner.most, Math.max(2.5 * owner.wanted, 1e-3 * owner.most));

  const sentence = (owner, one) => {
    if (owner.most === 0) return "Your cap is used up: your device would sell nothing more.";
    if (one.budget === 0) {
      return owner.best === 0
        ? "Your best reply is to sell nothing: at what others seem to sell, this reward pays less than your privacy is worth to you."
        : "At a budget of 0 you sell nothing and earn nothing.";
    }
    const best = one.budget === owner.best ? " This is your best reply." : ` Your best reply is ${figure(owner.best)} rho, which leaves you ${figure(choice(owner, owner.best).gain)} credits.`;
    const capped = owner.best < owner.wanted && one.budget === owner.best ? (owner.most < task.maxRho ? " Your cap keeps it from being more." : " The task takes no more.") : "";
    return `At a budget of ${figure(one.budget)} rho you earn ${figure(one.earned)} credits, your privacy loss is at most epsilon ${loss(one.epsilon)} about any one record and ${loss(one.whole)} about the whole owner, and this is ${percent(one.share)} of your lifetime cap's rho.${best}${capped}`;
  };

  const basis = (owner) => {
    if (task.total !== null) return;
    const rivals = task.owners === 2 ? "one other owner" : `${task.owners - 1} other owners`;
    by("basis").textContent = task.low === null
      ? `Nothing is announced yet: this assumes ${rivals} with a value like yours, who sell ${figure(owner.others)} rho together.`
      : `Nothing is announced yet: this assumes ${rivals} with values from ${figure(task.low)} to ${figure(task.high)}, as the buyer does, who sell ${figure(owner.others)} rho together.`;
  };

  let chart = null;
  let drawn = null;
  const line = (plot, at, dash) => {
    const { ctx, bbox } = plot;
    const x = Math.round(plot.valToPos(at, "x", true));
    ctx.save();
    ctx.strokeStyle = colour("--ink");
    ctx.lineWidth = 2 * devicePixelRatio;
    ctx.setLineDash(dash.map((part) => part * devicePixelRatio));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  };
  const marks = (plot) => {
    if (drawn.budget !== drawn.best) line(plot, drawn.budget, []);
    line(plot, drawn.best, [6, 5]);
    const { ctx } = plot;
    ctx.save();
    ctx.fillStyle = colour("--series-2");
    ctx.beginPath();
    ctx.arc(plot.valToPos(drawn.best, "x", true), plot.valToPos(drawn.bestGain, "y", true), 5 * devicePixelRatio, 0, 2 * Math.PI);
    ctx.fill();
    ctx.restore();
  };
  const axis = (label) => ({ label, stroke: colour("--soft"), grid: { stroke: colour("--grid") }, ticks: { stroke: colour("--grid") }, values: (_, ticks) => ticks.map((tick) => figure(tick, 3)) });
  const size = () => ({ width: by("plot").clientWidth, height: 260 });
  const draw = (owner, one) => {
    if (!globalThis.uPlot) return;
    const last = Math.max(top(owner), one.budget) || 1;
    const budgets = Array.from({ length: POINTS + 1 }, (_, i) => (last * i) / POINTS);
    const choices = budgets.map((budget) => choice(owner, budget));
    const data = [budgets, choices.map((each) => each.earned), choices.map((each) => each.gain)];
    drawn = { budget: one.budget, best: owner.best, bestGain: choice(owner, owner.best).gain };
    if (chart) {
      chart.setData(data);
      return;
    }
    const options = {
      ...size(),
      scales: { x: { time: false } },
      legend: { live: false },
      cursor: { show: false },
      axes: [{ ...axis("budget, rho") }, { ...axis("credits"), size: 64 }],
      series: [
        {},
        { label: "pay", stroke: colour("--series-1"), width: 2.5, points: { show: false } },
        { label: "left for you", stroke: colour("--series-2"), width: 2.5, dash: [8, 4], points: { show: false } },
      ],
      hooks: { draw: [marks] },
    };
    chart = new uPlot(options, data, by("plot"));
  };
  const redraw = () => {
    if (chart) chart.destroy();
    chart = null;
    show();
  };

  const table = (owner) => {
    const last = top(owner);
    const budgets = new Set(Array.from({ length: ROWS }, (_, i) => (last * (i + 1)) / ROWS));
    budgets.add(owner.best);
    const rows = [...budgets].sort((a, b) => a - b).map((budget) => {
      const one = choice(owner, budget);
      const row = document.createElement("tr");
      const best = budget === owner.best;
      const cells = [figure(one.budget) + (best ? " (best)" : ""), figure(one.earned), loss(one.epsilon), loss(one.whole), percent(one.share), figure(one.gain)];
      cells.forEach((text, i) => {
        const cell = document.createElement(i ? "td" : "th");
        if (!i) cell.scope = "row";
        cell.className = "num";
        cell.textContent = text;
        row.append(cell);
      });
      if (best) row.className = "best";
      return row;
    });
    by("choices").replaceChildren(...rows);
  };

  const slide = (owner, budget) => {
    const last = top(owner);
    const slider = by("budget-slider");
    slider.value = last ? Math.round(1000 * Math.min(1, budget / last)) : 0;
    slider.setAttribute("aria-valuetext", `${figure(budget)} rho`);
  };

  function show() {
    const owner = read();
    if (owner === null) {
      for (const id of ["pay", "loss", "whole-loss", "share", "gain"]) by(id).textContent = "–";
      by("sentence").textContent = "Type your numbers to see what a budget would earn.";
      return;
    }
    const budget = chosen === null ? owner.best : chosen;
    const beyond = budget > owner.most;
    const one = choice(owner, budget);
    if (chosen === null) by("budget").value = owner.best === 0 ? "0" : Number(owner.best.toPrecision(6));
    by("budget").closest(".field").classList.toggle("wrong", beyond);
    by("budget-error").textContent = !beyond ? "" : owner.most < task.maxRho
      ? `Your cap leaves ${figure(owner.most)} rho: your device would refuse more.`
      : `A plan of this task offers ${figure(task.maxRho)} rho at most.`;
    slide(owner, budget);
    by("value-slider").value = Math.round(100 * Math.log10(owner.value));
    by("value-slider").setAttribute("aria-valuetext", `${figure(owner.value)} credits per rho`);
    by("pay").textContent = figure(one.earned);
    by("loss").textContent = loss(one.epsilon);
    by("whole-loss").textContent = loss(one.whole);
    by("share").textContent = percent(one.share);
    by("share-note").textContent = owner.used > 0 ? `with what is used: ${percent((budget + owner.used) / owner.capRho)}` : "what this task takes";
    by("gain").textContent = figure(one.gain);
    by("sentence").textContent = sentence(owner, one);
    basis(owner);
    draw(owner, one);
    table(owner);
  }

  for (const id of ["value", "cap", "used", "reward"]) by(id)?.addEventListener("input", show);
  by("cap-unit").addEventListener("change", show);
  by("value-slider").addEventListener("input", (event) => {
    by("value").value = Number((10 ** (event.target.value / 100)).toPrecision(3));
    show();
  });
  by("budget").addEventListener("input", () => {
    const budget = typed("budget", "The budget", { zero: true });
    if (budget !== null) {
      chosen = budget;
      show();
    }
  });
  by("budget-slider").addEventListener("input", (event) => {
    const owner = read();
    if (owner === null) return;
    chosen = Number(((top(owner) * event.target.value) / 1000).toPrecision(6));
    by("budget").value = chosen;
    show();
  });
  by("to-best").addEventListener("click", () => {
    chosen = null;
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(() => chart?.setSize(size())).observe(by("plot"));
  show();
});
