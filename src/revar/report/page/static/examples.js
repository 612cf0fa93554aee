// Inputs worth a look: pictures as tiles, rows of tables as tables.

function verdict(one, classes) {
  const right = one.label === one.predicted;
  return h("span", { class: `verdict ${right ? "yes" : "no"}` }, right ? `says ${classes[one.predicted]}, right` : `says ${classes[one.predicted]}, is ${classes[one.label]}`);
}

function picture(content, words) {
  // A small picture is enlarged in squares, as it is; a large one smoothly.
  const image = h("img", { alt: words, src: `data:image/png;base64,${content.picture}` });
  image.addEventListener("load", () => image.classList.toggle("smooth", image.naturalWidth > 40));
  return image;
}

function tiles(examples, contents, say, words) {
  return h("ul", { class: "tiles" }, examples.map((one) => h("li", { class: "tile" }, picture(contents[one.row], words(one)), say(one))));
}

function rowsTable(name, examples, contents, head, cells) {
  const columns = contents[examples[0].row].cells.map(([column]) => column);
  return table(name, ["row", ...head, ...columns], examples.map((one) => ({ cells: [contents[one.row].name || String(one.index), ...cells(one), ...contents[one.row].cells.map(([, text]) => text)] })), { quiet: true });
}

function drawGallery() {
  const run = PAGE.runs[state.run];
  const set = run.sets[state.set];
  const contents = run.contents[state.set];
  const { classes } = run;
  const value = (one) => Object.entries(one.scores).map(([name, at]) => `${name} ${short(Number(at.toPrecision(3)))}`).join(", ");
  if (!set.gallery.length) {
    put("gallery", h("p", { class: "small" }, set.note ? `${run.name} on ${state.set}: ${set.note}.` : "No inputs were given for this set, so none are shown."));
    return;
  }
  put("gallery", h("p", { class: "hint" }, `${run.name} on ${state.set}.`), set.gallery.map((shelf) => {
    const pictures = contents[shelf.examples[0].row].picture !== null;
    const shownHere = pictures
      ? tiles(shelf.examples, contents, (one) => [h("b", {}, verdict(one, classes)), h("span", { class: "small" }, `${percent(one.confidence, 1)} sure, ${value(one)}`)],
        (one) => `${contents[one.row].name || `example ${one.index}`}: true class ${classes[one.label]}, answer ${classes[one.predicted]}`)
      : rowsTable(shelf.title, shelf.examples, contents, ["true class", "answer", "confidence", ...Object.keys(shelf.examples[0].scores)],
        (one) => [classes[one.label], verdict(one, classes), percent(one.confidence, 1), ...Object.values(one.scores).map((at) => short(Number(at.toPrecision(4))))]);
    return h("div", { class: pictures ? "shelf" : "block shelf" }, h("h3", {}, shelf.title), h("p", { class: "small" }, shelf.note), shownHere);
  }));
}

function drawSuspects() {
  const having = PAGE.runs.filter((run) => run.suspects.length);
  byId("suspects").hidden = !having.length;
  put("suspect-list", having.map((run) => h("div", { class: "block" }, h("h3", {}, run.name),
    Object.keys(run.train_contents).length ? null : h("p", { class: "small" }, run.train_note),
    run.suspects.map((shelf) => suspectShelf(run, shelf)))));
}

function suspectShelf(run, shelf) {
  const contents = run.train_contents;
  const { classes } = run;
  const all = shelf.examples;
  const differs = all.filter((one) => one.label !== one.predicted).length;
  const mean = all.reduce((sum, one) => sum + one.given, 0) / all.length;
  const words = `${shelf.note} ${all.length} of ${whole(run.suspects_of)}; the model answers otherwise than the label for ${differs} of them, and gives the label ${percent(mean, 1)} on average.`;
  const there = all.filter((one) => contents[one.row]);
  const weighed = all[0].weight !== null;
  const head = ["given label", "answer", "probability of the label", ...(weighed ? ["weight"] : []), "U-Score"];
  const cells = (one) => [classes[one.label], classes[one.predicted], percent(one.given, 1), ...(weighed ? [one.weight.toFixed(3)] : []), one.scores.uscore.toFixed(3)];
  let list;
  if (there.length && contents[there[0].row].picture !== null) {
    list = tiles(there, contents, (one) => [h("b", {}, `labelled ${classes[one.label]}`), one.label === one.predicted ? null : h("span", { class: "verdict no" }, `model says ${classes[one.predicted]}`),
      h("span", { class: "small line" }, `label ${percent(one.given, 1)}${weighed ? `, weight ${one.weight.toFixed(2)}` : ""}`)],
    (one) => `training point ${one.index}: labelled ${classes[one.label]}, answer ${classes[one.predicted]}`);
  } else if (there.length) list = rowsTable(`${shelf.title}, ${run.name}`, there, contents, head, cells);
  else list = table(`${shelf.title}, ${run.name}`, ["row of the training data", ...head], all.map((one) => ({ cells: [String(one.index), ...cells(one)] })), { quiet: true });
  return h("div", { class: "shelf" }, h("h4", {}, shelf.title), h("p", { class: "small" }, words), list);
}

function drawFacts() {
  put("cards-of-runs", PAGE.runs.map((run) => h("div", { class: "block" }, h("h3", {}, run.name), facts(run.card))));
  put("facts", PAGE.runs.map((run) => h("div", { class: "block" }, h("h3", {}, run.name),
    Object.entries(run.provenance).map(([name, pairs]) => h("details", { open: name !== "Recipe" }, h("summary", {}, name), facts(pairs))))));
}
