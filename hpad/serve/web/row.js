// One HPA as a row of the list, and the parts that its own page has, too.

function stateBadge(state) {
  const { label, text } = STATES[state] ?? { label: state, text: "" };
  return h("span.badge", { "data-state": state, title: text }, icon(state), label);
}

const shownStates = (row) => row.states.filter((state) => state !== "dryRun");

// The mark of a row: its most serious state, by shape, color and words.
function stateMark(row) {
  const [first] = shownStates(row);
  if (first) return h("span.mark", { "data-state": first }, icon(first, STATES[first]?.label ?? first));
  if (!row.lastDecision) return h("span.mark", { "data-state": "waiting" }, icon("waiting", "No decision yet"));
  return h("span.mark", { "data-state": "ok" }, icon("ok", "In order"));
}

// The status has 0 before the scale of the target was read for the first time.
const UNREAD = new Set(["target_unreadable", "stale_cache"]);
const unknownCount = (row) => !row.currentReplicas && (!row.lastDecision || UNREAD.has(row.lastDecision.heldBy));

// The count that the target should have differs from the one it has, and no failure makes it meaningless.
const moves = (row) =>
  row.lastDecision && !row.states.includes("failing") && row.desiredReplicas !== row.currentReplicas;

function replicaCount(row) {
  if (unknownCount(row)) return h("span.count", {}, "?");
  if (!moves(row)) return h("span.count", {}, count(row.currentReplicas));
  const up = row.desiredReplicas > row.currentReplicas;
  return h(
    "span.count",
    {},
    count(row.currentReplicas),
    h("span.to", {}, icon("arrow", "to")),
    h("b", { class: up ? "up" : "down" }, count(row.desiredReplicas)),
  );
}

// A bar from 0 to the maximum: the current count, a tick at the minimum, and a mark at the desired count.
function replicaBar(row) {
  const most = Math.max(row.maxReplicas, row.currentReplicas, 1);
  const part = (number) => `${(100 * number) / most}%`;
  return h(
    "span.range",
    { "aria-hidden": "true" },
    h("span.bar", { style: { "--current": part(row.currentReplicas), "--min": part(row.minReplicas) } },
      h("span.fill", {}),
      h("span.min", {}),
      moves(row) && h("span.desired", { style: { "--desired": part(row.desiredReplicas) } }),
    ),
    h("span.bounds", {}, `${count(row.minReplicas)}–${count(row.maxReplicas)}`),
  );
}

// A small bar of the usage: its middle is the metric target.
function meter(ratio) {
  if (ratio === undefined || ratio < 0) return h("span.meter.none", { "aria-hidden": "true" });
  const over = ratio > 1.1 ? "over" : null;
  const filled = `${Math.min(100, ratio * 50)}%`;
  return h("span.meter", { "aria-hidden": "true", class: over, style: { "--filled": filled } });
}

function metricLine(metric) {
    return h(
    "span.metric",
    { title: metric.address },
    h("span.name", {}, metric.address),
    meter(metric.ratio),
    h("span.value", {}, metric.current ?? "–", metric.target && h("span.of", {}, ` / ${metric.target}`)),
  );
}

// The metrics of a row: both of two; of more, the one that asks for the most replicas.
function metricLines({ metrics }) {
  const leading = metrics.reduce((most, each) => ((each.proposal ?? -1) > (most?.proposal ?? -1) ? each : most), metrics[0]);
  const shown = metrics.length > 2 ? [leading] : metrics;
  const more = metrics.length - shown.length;
  return [...shown.map(metricLine), more > 0 && h("span.metric.more", {}, `and ${plural(more, "more metric")}`)];
}

function targetName(row) {
  return row.target.name === row.name ? row.target.kind : `${row.target.kind} ${row.target.name}`;
}

// Competing writers and mistakes in annotations, unless the sentence names them.
const notesOf = (row) => (row.notes ?? []).filter((note) => !row.lastDecision?.sentence.includes(note));

const hpaLink = (row) => `#/hpas/${encodeURIComponent(row.namespace)}/${encodeURIComponent(row.name)}`;

// A row of the list. `index` is its place, from 0; `active`: it is the one that the keyboard is at.
function hpaRow(row, index, active) {
  const last = row.lastDecision;
  return h(
    "div.row",
    { role: "row", "aria-rowindex": index + 2, "data-key": row.key, "data-index": index, class: active && "active" },
    h("div.cell.state", { role: "gridcell" }, stateMark(row)),
    h("div.cell.name", { role: "gridcell" },
      h("span.sub", {}, h("span", {}, row.namespace), h("span.quiet", {}, targetName(row))),
      h("a.title", { href: hpaLink(row), tabindex: active ? 0 : -1 }, row.name),
    ),
    h("div.cell.replicas", { role: "gridcell" }, replicaCount(row), replicaBar(row)),
    h("div.cell.metrics", { role: "gridcell" }, metricLines(row)),
    h("div.cell.decision", { role: "gridcell" },
      h("span.sentence", { title: last?.sentence },
        shownStates(row).map(stateBadge),
        last ? last.sentence : h("span.quiet", {}, "No decision by this replica yet."),
        notesOf(row).map((note) => `; ${note}`),
      ),
    ),
    h("div.cell.time", { role: "gridcell" },
      last ? timeAgo(last.time) : "–",
      row.lastScaleTime && h("span.quiet", {}, "scaled ", timeAgo(row.lastScaleTime)),
    ),
  );
}
