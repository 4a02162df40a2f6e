// The filter of the table. Its state is in the fragment of the address, as "#?q=web&fault=flapping"; any other fragment
// is that of an HPA.
"use strict";

const filter = document.getElementById("filter");
const rows = [...document.querySelectorAll(".fleet tbody tr")];
const blocks = [...document.querySelectorAll(".hpa")];
const FIELDS = ["q", "fault", "severity", "order"];

// Rows and blocks have the same order at first.
const hpas = rows.map((row, index) => ({
  row,
  block: blocks[index],
  name: row.cells[0].textContent,
  text: row.textContent.toLowerCase(),
  faults: row.dataset.faults.split(" "),
  saved: Number(row.dataset.saved),
  rank: index,
}));

const ORDERS = {
  "": (one, other) => one.rank - other.rank,
  saved: (one, other) => other.saved - one.saved || one.rank - other.rank,
  name: (one, other) => (one.name < other.name ? -1 : 1),
};

function matches(hpa, { q, fault, severity }, advice) {
  return q.toLowerCase().split(/\s+/).every((word) => hpa.text.includes(word))
    && (!fault || hpa.faults.includes(fault))
    && (!severity || hpa.row.classList.contains(severity))
    && (!advice || "advice" in hpa.row.dataset);
}

let order = "";
function apply() {
  const chosen = Object.fromEntries(FIELDS.map((name) => [name, filter.elements[name].value.trim()]));
  const advice = filter.elements.advice.checked;
  let shown = 0;
  for (const hpa of hpas) {
    const fits = matches(hpa, chosen, advice);
    hpa.row.hidden = hpa.block.hidden = !fits;
    shown += fits;
  }
  if (chosen.order !== order) {
    order = chosen.order;
    const sorted = [...hpas].sort(ORDERS[order]);
    rows[0].parentElement.append(...sorted.map((hpa) => hpa.row));
    blocks[0].parentElement.append(...sorted.map((hpa) => hpa.block));
  }
  filter.querySelector("[role=status]").textContent = shown === hpas.length ? `${shown} HPAs` : `${shown} of ${hpas.length} HPAs`;
}

function keep() {
  const given = [...new FormData(filter)].map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);
  const state = given.length ? `#?${new URLSearchParams(given)}` : location.pathname + location.search;
  history.replaceState(null, "", state);
}

// Shows what the fragment asks for: a state of the filter, or an HPA.
function follow() {
  if (location.hash.startsWith("#?")) {
    const given = new URLSearchParams(location.hash.slice(2));
    for (const name of FIELDS) {
      const field = filter.elements[name];
      field.value = given.get(name) ?? "";
      if (field.selectedIndex === -1) field.value = "";
    }
    filter.elements.advice.checked = given.has("advice");
    apply();
    return;
  }
  const found = blocks.find((block) => `#${encodeURI(block.id)}` === location.hash || `#${block.id}` === location.hash);
  if (!found) return;
  found.hidden = false;
  found.open = true;
  found.querySelector("summary").focus({ preventScroll: true });
  found.scrollIntoView();
}

function openAll(open) {
  for (const hpa of hpas) hpa.block.open = open;
}

if (filter) {
  filter.hidden = false;
  filter.addEventListener("input", () => { apply(); keep(); });
  filter.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    filter.elements.q.focus();
  });
  for (const [label, open] of [["Close all", false], ["Open all", true]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", () => openAll(open));
    document.getElementById("each").after(button);
  }
  window.addEventListener("hashchange", follow);
  apply();
  follow();
}
