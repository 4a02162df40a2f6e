// The parts of an HPA that its row in the list and its own page have: states, replicas, names.

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
const UNREAD = new Set(["target_unreadable", "stale_cache", "too_large", "invalid_spec"]);
const unknownCount = (row) => !row.currentReplicas && (!row.lastDecision || UNREAD.has(row.lastDecision.heldBy));

// The count that the target should have; in shadow mode the one that hpad would have given it.
const wanted = (row) => row.shadowReplicas ?? row.desiredReplicas;

// The count that the target should have differs from the one it has, and no failure makes it meaningless.
const moves = (row) => row.lastDecision && !row.states.includes("failing") && wanted(row) !== row.currentReplicas;

function replicaCount(row) {
  if (unknownCount(row)) return h("span.count", {}, "?");
  if (!moves(row)) return h("span.count", {}, count(row.currentReplicas));
  const up = wanted(row) > row.currentReplicas;
  return h(
    "span.count",
    {},
    count(row.currentReplicas),
    h("span.to", {}, icon("arrow", "to")),
    h("b", { class: up ? "up" : "down" }, count(wanted(row))),
  );
}

// A bar from 0 to the maximum: the current count, a tick at the minimum, and a mark at the desired count.
function replicaBar(row) {
  const most = Math.max(row.maxReplicas, row.currentReplicas, 1);
  const part = (number) => `${(100 * number) / most}%`;
  return h(
    "span.range",
    { "aria-hidden": "true" },
    h("span.bar", {},
      h("span.fill", { style: { width: part(row.currentReplicas) } }),
      h("span.min", { style: { left: part(row.minReplicas) } }),
      moves(row) && h("span.desired", { style: { left: part(wanted(row)) } }),
    ),
    h("span.bounds", {}, `${count(row.minReplicas)}–${count(row.maxReplicas)}`),
  );
}

// The metrics that a row shows, both of two; of more, the one that asks for the most replicas. And how many it leaves out.
function shownMetrics({ metrics }) {
  if (metrics.length <= 2) return [metrics, 0];
  const leading = metrics.reduce((most, each) => ((each.proposal ?? -1) > (most.proposal ?? -1) ? each : most));
  return [[leading], metrics.length - 1];
}

function targetName(row) {
  return row.target.name === row.name ? row.target.kind : `${row.target.kind} ${row.target.name}`;
}

// The last decision in a few words; of a decision before this process was started only the sentence is known.
const briefOf = ({ lastDecision }) => lastDecision?.brief || lastDecision?.sentence || "No decision by this replica yet.";

// Competing writers and mistakes in annotations, unless the sentence names them.
const notesOf = (row) => (row.notes ?? []).filter((note) => !row.lastDecision?.sentence.includes(note));

// `at` is the time of a past decision.
function hpaLink(row, at = null) {
  const query = new URLSearchParams();
  if (row.kind === AUTOSCALER) query.set("kind", row.kind);
  if (at) query.set("at", at);
  return `#/${hpaPath(row)}${query.size ? `?${query}` : ""}`;
}

// What tells an Autoscaler from an HPA of the same name.
const kindMark = ({ kind }) => kind === AUTOSCALER && h("span.kind", {}, kind);
