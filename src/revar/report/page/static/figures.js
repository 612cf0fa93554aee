// Counting. The definitions are those of revar.metrics: of a block of tied examples at the border
// every one counts with the share of the block that is kept.

function border(series, kept) {
  let from = kept - 1;
  while (from > 0 && series.tied[from]) from -= 1;
  let to = kept;
  while (to < series.n && series.tied[to]) to += 1;
  if (kept === 0) return { from: 0, to: 0, share: 0 };
  return to === kept ? { from: kept, to: kept, share: 0 } : { from, to, share: (kept - from) / (to - from) };
}

// Accuracy and risk of the `kept` most certain examples, in expectation over the order of ties.
function summary(series, kept) {
  const edge = border(series, kept);
  const before = series.errors[edge.from];
  const errors = before + edge.share * (series.errors[edge.to] - before);
  return {
    kept, errors, edge,
    coverage: kept / series.n,
    risk: kept ? errors / kept : NaN,
    accuracy: kept ? (kept - errors) / kept : NaN,
    rejected: series.n - kept,
    rejectedErrors: series.errors[series.n] - errors,
  };
}

// The same by class, by group and by pair of classes.
function detail(series, kept) {
  const classes = series.run.classes.length;
  const groups = series.group ? series.set.groups.length : 0;
  const found = {
    all: new Float64Array(classes), taken: new Float64Array(classes), right: new Float64Array(classes),
    groupAll: new Float64Array(groups), groupTaken: new Float64Array(groups), groupRight: new Float64Array(groups),
    pairs: new Map(),
  };
  const { from, to, share } = border(series, kept);
  for (let i = 0; i < series.n; i += 1) {
    const label = series.label[i];
    const group = groups ? series.group[i] : 0;
    found.all[label] += 1;
    if (groups) found.groupAll[group] += 1;
    const part = i < from ? 1 : i < to ? share : 0;
    if (part === 0) continue;
    const offset = series.offset[i];
    found.taken[label] += part;
    if (groups) found.groupTaken[group] += part;
    if (offset === 0) {
      found.right[label] += part;
      if (groups) found.groupRight[group] += part;
    }
    const pair = label * classes + ((label + offset) % classes);
    found.pairs.set(pair, (found.pairs.get(pair) ?? 0) + part);
  }
  return found;
}

// How many examples a wish keeps. Whole numbers are rounded down, to no less than one example.
function keptAt(series, wish) {
  if (wish.kind === "risk") return series.risk_kept[wish.step];
  if (wish.kind === "saved") return Math.max(1, Math.round(wish.share * series.n));
  return Math.max(1, Math.floor((wish.step / PAGE.steps) * series.n * (1 + 1e-12) + 1e-9));
}

function thresholdAt(series, wish) {
  if (wish.kind === "risk") return series.risk_kept[wish.step] ? series.risk_threshold[wish.step] : null;
  if (wish.kind === "saved") return null;
  return series.threshold[wish.step - 1];
}
