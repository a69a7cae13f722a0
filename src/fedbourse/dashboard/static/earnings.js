// What a budget earns and risks: the mathematics of the owner's calculator, without a page.
// It agrees with game/best_response.py and device/advice.py.
"use strict";
globalThis.earnings = (() => {
  // The best reply to others' total Q: sqrt(R Q / v) - Q, as a quotient so that nothing cancels.
  const reply = (value, others, reward) => {
    const room = Math.max(0, reward - value * others);
    return ((others / value) * room) / (Math.sqrt(reward) * Math.sqrt(others / value) + others);
  };

  const pay = (budget, others, reward) => (budget > 0 ? (reward * budget) / (budget + others) : 0);

  // What others sell once a total P is announced, if the owner replies with its best share.
  const othersAt = (value, total, reward) => total * Math.min(1, (value * total) / reward);

  // What others sell in equilibrium before that, if their values lie evenly over low to high.
  // Of values in order, the K lowest take part, with the largest K for which v_K (K - 1) < sum.
  const othersAmong = (value, { owners, low, high }, reward) => {
    const rivals = owners - 1;
    if (low === null) return (reward * rivals * rivals) / (owners * owners * value);
    const step = (high - low) / rivals;
    const rival = (i) => low + step * (i + 0.5);
    const below = Math.min(rivals, Math.max(0, Math.ceil((value - low) / step - 0.5)));
    const ranked = (i) => (i < below ? rival(i) : i === below ? value : rival(i - 1));
    const rivalSum = (k) => k * low + (step * k * k) / 2;
    const sum = (k) => (k <= below ? rivalSum(k) : rivalSum(k - 1) + value);
    let inside = 2;
    let outside = owners + 1;
    while (outside - inside > 1) {
      const k = Math.floor((inside + outside) / 2);
      if (ranked(k - 1) * (k - 1) < sum(k)) inside = k;
      else outside = k;
    }
    const total = (reward * (inside - 1)) / sum(inside);
    return below < inside ? othersAt(value, total, reward) : total;
  };

  // Epsilon of a budget from the page's table, on logarithmic axes; never below the proved one.
  const epsilonCurve = ({ low, high, delta, epsilons }) => {
    const logs = epsilons.map(Math.log);
    const step = Math.log(high / low) / (epsilons.length - 1);
    return (rho) => {
      if (!(rho > 0)) return 0;
      if (rho > high) return 1.000001 * (rho + 2 * Math.sqrt(rho * -Math.log(delta))); // Bun and Steinke
      const place = Math.max(0, Math.log(rho / low) / step);
      const left = Math.min(epsilons.length - 2, Math.floor(place));
      return Math.exp(logs[left] + (place - left) * (logs[left + 1] - logs[left]));
    };
  };

  // The largest budget within an epsilon, to neighbouring doubles, on the safe side.
  const budgetWithin = (epsilon, epsilonOf) => {
    let [low, high] = [-80, 80];
    for (let i = 0; i < 80; i += 1) {
      const middle = (low + high) / 2;
      if (epsilonOf(Math.exp(middle)) <= epsilon) low = middle;
      else high = middle;
    }
    return Math.exp(low);
  };

  return { reply, pay, othersAt, othersAmong, epsilonCurve, budgetWithin };
})();
