// Tables, in a box that scrolls where there is not room enough.

function table(caption, head, rows, options = {}) {
  const columns = head.map((text) => h("th", { scope: "col" }, text));
  const body = rows.map((row) => h("tr", { class: row.chosen ? "chosen" : null },
    row.cells.map((cell, i) => (i === 0 ? h("th", { scope: "row" }, cell) : h("td", {}, cell)))));
  const name = options.name ?? (typeof caption === "string" ? caption : "table");
  const whole = h("table", { class: options.look }, h("caption", { class: "unseen" }, name), h("thead", {}, h("tr", {}, columns)), h("tbody", {}, body));
  return boxed(whole, name, options.quiet ? null : caption);
}

// The heading stands outside, so that it does not scroll away with the columns.
function boxed(whole, name, heading) {
  const box = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, whole);
  return heading ? h("div", {}, h("h3", { class: "caption" }, heading), box) : box;
}

// The numbers behind a drawing, for who cannot see it or wants them.
function behind(title, head, rows) {
  return h("details", {}, h("summary", {}, "As a table"), table(title, head, rows.map((cells) => ({ cells })), { quiet: true }));
}

function meter(share) {
  const bar = h("i");
  bar.style.width = `${known(share) ? Math.min(100, 100 * share) : 0}%`;
  return h("span", { class: "meter", "aria-hidden": "true" }, bar);
}

function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]));
}
