// What a card would buy, requested as it is written; an outdated response is dropped.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const form = document.getElementById("card-form");
  const place = document.getElementById("what-if-result");
  const problem = document.getElementById("what-if-error");
  const field = (name) => form.elements[name];
  const slider = document.getElementById("reward-slider");
  const WAIT_MS = 150;
  const AGAIN_MS = 1000;
  const DECADES = 4;
  const HEIGHT = 200;
  const MICRO = 1e-6; // what money is counted in
  const figure = document.getElementById("utility");
  let requests = 0, waiting = 0, under = null, chart = null;

  // The slider covers rewards from a ten-thousandth of the accuracy value up to it, on a logarithmic scale.
  const accuracyValue = () => Math.max(Number(field("accuracy_value").value) || 1, MICRO);
  const toReward = (place) => Number((accuracyValue() * 10 ** (DECADES * (place / 1000 - 1))).toPrecision(3));
  const toPlace = (reward) => Math.round(1000 * (1 + Math.log10(reward / accuracyValue()) / DECADES));
  const followReward = () => {
    const reward = Number(field("reward").value);
    if (reward > 0) slider.value = Math.min(1000, Math.max(0, toPlace(reward)));
    slider.setAttribute("aria-valuetext", `${field("reward").value} credits`);
  };
  slider.addEventListener("input", () => {
    field("reward").value = String(toReward(Number(slider.value)));
    slider.setAttribute("aria-valuetext", `${field("reward").value} credits`);
    soon();
  });

  const showKind = () => form.classList.toggle("computed", field("reward_kind").value !== "fixed");

  // Errors at their fields, as the server would put them there.
  const mark = (errors) => {
    for (const old of form.querySelectorAll(".error.live")) {
      const input = old.parentElement.querySelector("[name]");
      old.parentElement.classList.remove("wrong");
      input.removeAttribute("aria-invalid");
      input.removeAttribute("aria-errormessage");
      old.remove();
    }
    for (const [name, sentence] of Object.entries(errors)) {
      const input = field(name), box = input?.closest?.(".field");
      if (!box || box.querySelector(".error")) continue;
      const line = document.createElement("p");
      line.className = "error live";
      line.id = `f-${name}-live`;
      line.textContent = `${sentence[0].toUpperCase()}${sentence.slice(1).split(", unable to")[0]}.`;
      box.append(line);
      box.classList.add("wrong");
      input.setAttribute("aria-invalid", "true");
      input.setAttribute("aria-errormessage", line.id);
      box.closest("details")?.setAttribute("open", "");
    }
    const first = Object.entries(errors)[0];
    problem.hidden = !first;
    const label = first && form.querySelector(`label[for="f-${first[0]}"]`);
    problem.textContent = first ? `${label ? `${label.textContent}: ` : ""}${first[1].split(", unable to")[0]}.` : "";
    place.classList.toggle("old", Boolean(first));
  };

  const ask = async () => {
    const mine = ++requests;
    under?.abort();
    under = new AbortController();
    try {
      const response = await fetch("/buy/what-if", {
        method: "POST", signal: under.signal, headers: { Accept: "application/json" },
        body: new URLSearchParams(new FormData(form)),
      });
      if (mine !== requests) return;
      // Too many requests: the page shows the old result, and requests a new one a little later.
      if (response.status === 429) {
        place.classList.add("old");
        clearTimeout(waiting);
        waiting = setTimeout(ask, AGAIN_MS);
        return;
      }
      const body = await response.json();
      if (mine !== requests) return;
      if (!response.ok) throw new Error(body.detail);
      mark(body.errors);
      if (body.html) { place.innerHTML = body.html; show(); }
    } catch (error) {
      if (mine !== requests || error.name === "AbortError") return;
      problem.hidden = false;
      problem.textContent = "The market does not respond right now; this page tries again when you change something.";
      place.classList.add("old");
    }
  };
  const soon = () => { clearTimeout(waiting); waiting = setTimeout(ask, WAIT_MS); };
  form.addEventListener("input", (event) => {
    if (event.target === slider) return;
    // What the server refused is being corrected; the next response says whether it is right.
    const box = event.target.closest(".field");
    box?.querySelector(".error:not(.live)")?.remove();
    box?.classList.remove("wrong");
    event.target.removeAttribute("aria-invalid");
    if (["reward", "accuracy_value"].includes(event.target.name)) followReward();
    if (event.target.name === "reward_kind") showKind();
    soon();
  });

  document.getElementById("use-best").addEventListener("click", () => {
    const utility = curves();
    const best = utility?.best[utility.chosen]?.[0];
    if (!best) return;
    field("reward_kind").value = "fixed";
    field("reward").value = String(Number(Math.max(best, MICRO).toPrecision(4)));
    showKind(); followReward(); ask();
  });

  const curves = () => {
    const result = place.querySelector("[data-curves]");
    return result && JSON.parse(result.dataset.curves);
  };

  const show = () => {
    const utility = curves();
    if (!utility) return;
    const short = place.querySelector("[data-short]").dataset.short;
    document.getElementById("what-if-bar").textContent = `${short} ↓`;
    document.getElementById("what-if-status").textContent = `${short.replace("·", "owners take part; accuracy")}`;
    // The chart outlives the numbers around it.
    document.getElementById("chart-place").append(figure);
    figure.hidden = false;
    draw(utility);
  };

  const COLOURS = ["--series-1", "--series-2", "--series-3", "--series-4"];
  const draw = (utility) => {
    if (!window.uPlot) return;
    const names = utility.models;
    const data = [utility.rewards, ...names.map((name) => utility.utility[name])];
    if (!chart) chart = make(names);
    chart.curves = utility;
    chart.setData(data, false);
    const bests = Object.values(utility.best).map(([reward]) => reward).filter(Boolean);
    const low = Math.max(utility.rewards[0], Math.min(utility.reward, ...bests) / 4);
    const inside = data[0].map((x, i) => [x, i]).filter(([x]) => x >= low);
    const heights = inside.flatMap(([, i]) => data.slice(1).map((line) => line[i]));
    const top = Math.max(...heights), bottom = Math.max(Math.min(...heights), top - 1.2 * Math.abs(top));
    chart.batch(() => {
      chart.setScale("x", { min: low, max: utility.rewards.at(-1) });
      chart.setScale("y", { min: bottom, max: top + 0.06 * (top - bottom) });
    });
  };

  // uPlot's own ticks of a logarithmic axis never end where it does not start at a power of ten.
  const decades = (_, __, low, high) => {
    const ticks = [];
    const steps = Math.log10(high / low) > 2 ? [1] : [1, 2, 5];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      ticks.push(...steps.map((step) => Number(`${step}e${power}`)).filter((tick) => tick >= low && tick <= high));
    }
    return ticks;
  };
  const make = (names) => {
    const box = figure.querySelector(".plot");
    const axis = () => ({
      stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui",
    });
    const made = new uPlot({
      width: box.clientWidth, height: HEIGHT, pxAlign: false, legend: { show: false }, cursor: { show: false },
      scales: { x: { time: false, distr: 3, range: (_, low, high) => [low, high] }, y: { auto: false, range: (_, low, high) => [low, high] } },
      axes: [
        { ...axis(), size: 28, splits: decades, filter: (_, ticks) => ticks, values: (_, ticks) => ticks.map(String) },
        { ...axis(), size: 44 },
      ],
      series: [{}, ...names.map((name, i) => ({ label: name, stroke: colour(COLOURS[i]), width: 2, points: { show: false } }))],
      hooks: { draw: [(plot) => marks(plot, names)] },
    }, [[1, 2], ...names.map(() => [0, 0])], box);
    new ResizeObserver(() => { if (box.clientWidth) made.setSize({ width: box.clientWidth, height: HEIGHT }); }).observe(box);
    return made;
  };

  const marks = (plot, names) => {
    const utility = plot.curves;
    if (!utility) return;
    const { ctx, bbox } = plot, px = devicePixelRatio;
    ctx.save();
    ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
    const at = plot.valToPos(utility.reward, "x", true);
    ctx.strokeStyle = colour("--ink"); ctx.lineWidth = px; ctx.setLineDash([4 * px, 4 * px]);
    ctx.beginPath(); ctx.moveTo(at, bbox.top); ctx.lineTo(at, bbox.top + bbox.height); ctx.stroke();
    ctx.setLineDash([]);
    names.forEach((name, i) => {
      const [reward, gain] = utility.best[name];
      if (!reward) return;
      ctx.beginPath();
      ctx.arc(plot.valToPos(reward, "x", true), plot.valToPos(gain, "y", true), (name === utility.chosen ? 6 : 4) * px, 0, 7);
      ctx.fillStyle = colour(COLOURS[i]); ctx.fill();
      ctx.strokeStyle = colour("--box"); ctx.lineWidth = 1.5 * px; ctx.stroke();
    });
    ctx.restore();
  };

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { chart?.destroy(); chart = null; show(); });
  showKind(); followReward(); show();
});
