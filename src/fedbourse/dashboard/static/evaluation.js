// Evaluates a model on records that stay in this browser, with the formulas of learning/models.
"use strict";
window.evaluation = (() => {
  const cells = (line) => {
    const row = [];
    let cell = "", quoted = false;
    for (const sign of line) {
      if (sign === '"') quoted = !quoted;
      else if (!quoted && ",;\t".includes(sign)) { row.push(cell.trim()); cell = ""; }
      else cell += sign;
    }
    return [...row, cell.trim()];
  };

  // A table as text becomes features, with the constant 1 at the end, and labels.
  const read = (text, card) => {
    const lines = text.split(/\r?\n/).filter((line) => line.trim()).map(cells);
    if (lines.length < 2) throw new Error("the file has no records");
    const named = lines[0].some((cell) => cell === "" || Number.isNaN(Number(cell)));
    const names = named ? lines.shift() : null;
    const layout = card.layout;
    const width = card.features - 1;
    let at, label;
    if (layout && names) {
      at = layout.columns.map((column) => names.indexOf(column.name));
      label = names.indexOf(layout.label);
      const gone = [...layout.columns.map((column) => column.name), layout.label].find((name) => !names.includes(name));
      if (gone !== undefined) throw new Error(`the file has no column ${gone}`);
    } else {
      at = Array.from({ length: width }, (_, i) => i);
      label = lines[0].length - 1;
      if (label !== width) throw new Error(`the card has ${width} columns and a label; the file has ${lines[0].length}`);
    }
    const classes = layout?.classes?.length ? layout.classes : null;
    const features = [], labels = [];
    lines.forEach((line, row) => {
      const record = at.map((place, i) => {
        const { shift = 0, scale = 1 } = layout ? layout.columns[i] : {};
        return (Number(line[place]) - shift) / scale;
      });
      const text = line[label] ?? "";
      const index = classes ? classes.indexOf(text) : -1;
      const target = index >= 0 ? index : Number(text);
      const fits = text !== "" && Number.isFinite(target) && (!card.classes || (Number.isInteger(target) && target >= 0 && target < card.classes));
      if (!fits || !record.every(Number.isFinite)) throw new Error(`record ${row + 1} does not fit the card`);
      features.push([...record, 1]);
      labels.push(target);
    });
    return { features, labels };
  };

  const dot = (a, b, from = 0) => { let sum = 0; for (let i = 0; i < b.length; i++) sum += a[from + i] * b[i]; return sum; };
  const mean = (numbers) => numbers.reduce((a, b) => a + b, 0) / numbers.length;
  const logOnePlusExp = (x) => (x > 0 ? x + Math.log1p(Math.exp(-x)) : Math.log1p(Math.exp(x)));

  const byClass = (all, labels) => {
    let loss = 0, right = 0;
    all.forEach((scores, i) => {
      const top = Math.max(...scores);
      loss += top + Math.log(scores.reduce((sum, score) => sum + Math.exp(score - top), 0)) - scores[labels[i]];
      right += scores.indexOf(top) === labels[i];
    });
    return { loss: loss / all.length, accuracy: right / all.length };
  };

  const MODELS = {
    logistic: (p, { features, labels }) => {
      const scores = features.map((x) => dot(p, x));
      return {
        loss: mean(scores.map((s, i) => logOnePlusExp(labels[i] === 1 ? -s : s))),
        accuracy: mean(scores.map((s, i) => Number((s > 0) === (labels[i] === 1)))),
      };
    },
    "least-squares": (p, { features, labels }, card) => {
      const targets = card.classes ? labels.map((label) => 2 * label - 1) : labels;
      const predictions = features.map((x) => dot(p, x));
      const error = mean(predictions.map((f, i) => (f - targets[i]) ** 2));
      const middle = mean(targets), spread = mean(targets.map((t) => (t - middle) ** 2));
      const accuracy = card.classes ? mean(predictions.map((f, i) => Number((f > 0) === (targets[i] > 0)))) : spread ? 1 - error / spread : 0;
      return { loss: error / 2, accuracy };
    },
    softmax: (p, { features, labels }, card) =>
      byClass(features.map((x) => Array.from({ length: card.classes }, (_, k) => dot(p, x, k * card.features))), labels),
    hidden: (p, { features, labels }, card) => {
      const units = Number(card.model.split(":")[1]), split = units * card.features;
      return byClass(features.map((x) => {
        const hidden = Array.from({ length: units }, (_, k) => Math.tanh(dot(p, x, k * card.features)));
        hidden.push(1);
        return Array.from({ length: card.classes }, (_, k) => dot(p, hidden, split + k * (units + 1)));
      }), labels);
    },
  };

  const measure = (parameters, records, card) => MODELS[card.model.split(":")[0]](parameters, records, card);
  return { read, measure };
})();
