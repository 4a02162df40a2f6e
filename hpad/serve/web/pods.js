// The pods of one metric, by the group that they count in.

const GROUPS = {
  ready: "ready", unready: "not ready", missing: "without a value", ignored: "ignored",
  lacking: "without the container", unlisted: "not listed",
};
const FIRST_PODS = 12;

function podGroups(metric) {
  const pods = metric.pods ?? [];
  if (!pods.length) return null;
  const groups = Object.keys(GROUPS)
    .map((name) => [name, pods.filter((pod) => pod.group === name)])
    .filter(([, found]) => found.length);
  return h("details.more.pods", { "data-key": "pods" },
    h("summary", {},
      h("span.shares", { "aria-hidden": "true" }, groups.map(([name, found]) =>
        h("i", { "data-group": name, style: { "flex-grow": String(found.length) } }))),
      h("span", {}, groups.map(([name, found]) => `${count(found.length)} ${GROUPS[name]}`).join(", "))),
    groups.map(([name, found]) => podGroup(name, found, metric.unit)),
    metric.podsOmitted > 0 && h("p.quiet", {}, `${plural(metric.podsOmitted, "more pod")} not listed.`));
}

function podGroup(name, pods, unit) {
  const rest = pods.slice(FIRST_PODS);
  return h("section", { "data-key": name },
    h("h4", {}, h("i.swatch", { "data-group": name }), `${count(pods.length)} ${GROUPS[name]}`),
    podTable(pods.slice(0, FIRST_PODS), unit),
    rest.length > 0 && h("details", { "data-key": "rest" },
      h("summary", {}, `${plural(rest.length, "more pod")}`), podTable(rest, unit)));
}

function podTable(pods, unit) {
  return h("div.scroll", { tabindex: 0, role: "group", "aria-label": "Pods" }, h("table.pod-table", {},
    h("thead.hidden", {}, h("tr", {}, ["Pod", "Value", "Request", "Reason"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, pods.map((pod) =>
      h("tr", { "data-key": pod.name },
        h("th", { scope: "row" }, pod.name),
        h("td.number", {}, quantity(pod.value, unit) || (pod.assumed !== undefined && `${quantity(pod.assumed, unit)} assumed`) || "–"),
        h("td.number.quiet", {}, pod.request ? `of ${quantity(pod.request, unit)}` : ""),
        h("td.quiet", {}, pod.why ?? ""))))));
}
