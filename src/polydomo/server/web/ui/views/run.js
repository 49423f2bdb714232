// One run of a flow: its graph, and its nodes with their jobs. The graph is fetched once, page by page; then only what has changed.

import { ask, cancelFlow, retryFlow } from "../actions.js";
import { fold } from "../charts/fold.js";
import { bar, graph } from "../charts/graph.js";
import { h, put, setText } from "../dom.js";
import { get } from "../feed.js";
import { clock, count, duration, plural } from "../format.js";
import { address } from "../pages.js";
import { empty, explain, facts, filters, heading, name, progressBar, section, serviceLink, state } from "../parts.js";
import { table } from "../table.js";

export const title = "Flow";

const EVERY = 1000; // milliseconds between two looks at a flow that runs
const ENDED_EVERY = 5000; // at one that has ended: it may be retried
const STEPS = 500; // in an answer of the broker
const MOST_STEPS = 20; // answers in one look
const STATES = [["", "All"], ["running", "Running"], ["queued", "Queued"], ["delayed", "Delayed"], ["waiting", "Waiting"], ["done", "Done"], ["dead", "Dead"], ["skipped", "Skipped"], ["cancelled", "Cancelled"]];
const OVER = ["done", "failed", "cancelled"];
const NODE_OVER = ["done", "dead", "skipped", "cancelled"];

let kept = null; // the run that was seen last: coming back from a job shows it at once

/** What is known about a run: `flow`, `nodes` by number, `needs` by number, and `after`, the last step that was read. */
async function load(id, seen) {
  const run = { id, flow: null, nodes: [], needs: [], after: 0 };
  for (let first = 0; ; ) {
    const page = await get(`/v1/flows/${encodeURIComponent(id)}?edges=true&first=${first}`);
    run.flow ||= page; // the first: steps after its position are read later
    for (const node of page.nodes) {
      run.nodes[node.number] = node;
      run.needs[node.number] = [];
    }
    for (const [source, target] of page.needs) run.needs[target].push(source);
    if (!page.nodes.length || page.next >= page.total) break;
    first = page.next;
    if (!seen(page.next, page.total)) return null;
  }
  run.after = run.flow.position;
  run.released = run.needs.map(() => false);
  return run;
}

/** Reads what has changed. Returns false if the graph itself is another one: the flow was retried, or has grown. */
async function look(run) {
  for (let answers = 0; answers < MOST_STEPS; answers += 1) {
    const found = await ask("polydomo.flow.steps", { flow: run.id, after: run.after, open: true });
    if (found.total !== run.nodes.length || (found.state === "running" && run.flow.state !== "running")) return false;
    for (const step of found.steps) run.nodes[step.number] = step;
    run.after = found.next;
    run.flow = found;
    if (found.steps.length < STEPS) break;
  }
  const open = new Map((run.flow.open || []).map((row) => [row.number, row]));
  for (const node of run.nodes) {
    if (NODE_OVER.includes(node.state)) continue;
    const row = open.get(node.number);
    const next = row ? row.state : isReleased(run, node.number) ? "queued" : "waiting";
    if (node.state !== next) node.state = next;
    if (row) Object.assign(node, { attempts: row.attempts, started: row.started, progress: row.progress });
  }
  return true;
}

function isReleased(run, number) {
  run.released[number] ||= run.needs[number].every((source) => NODE_OVER.includes(run.nodes[source].state));
  return run.released[number];
}

/** Lets the browser draw and answer keys between two pieces of work. */
const pause = () => new Promise((resolve) => setTimeout(resolve));

function countsOf(nodes) {
  const counts = {};
  for (const node of nodes) counts[node.state] = (counts[node.state] || 0) + 1;
  return counts;
}

const HAS_JOB = ["queued", "delayed", "running"];
const hasJob = (node) => HAS_JOB.includes(node.state) || Boolean(node.created && node.state !== "skipped");

/** How long a node took, in microseconds: since its release, or for one that runs since its worker got it; -1 if that is not known. */
function took(node) {
  if (node.ended && node.created) return (Date.parse(node.ended) - Date.parse(node.created)) * 1000;
  return node.state === "running" && node.started ? Math.max(0, Date.now() - Date.parse(node.started)) * 1000 : -1;
}

const tookText = (node) => (took(node) < 0 ? "" : duration(took(node)));
const traceOf = (node) => address("requests", "", { show: "finished", id: node.job, from: "7d" });

export function show(place, id, query) {
  const heading1 = h("bdi", { title: id }, id);
  const word = h("span");
  const actions = h("div", { class: "actions" });
  const errors = h("div");
  const progress = h("p", { class: "note", role: "status" }, "Loading …");
  const body = h("div");
  place.append(h("p", { class: "back" }, h("a", { href: "#/flows" }, "← Flows")), heading([heading1, word], actions), errors, progress, body);
  let chosen = { state: query.get("state") || "", box: query.get("box") || "" };
  let run = kept && kept.id === id ? kept : null;
  let picture = null; // {boxes, graph, tabs, table, ...} of the run
  let ended = false;
  let timer = 0;

  async function turn() {
    clearTimeout(timer);
    if (document.visibilityState === "visible") {
      try {
        if (run && !(await look(run))) run = null;
        if (!run) {
          run = await load(id, (loaded, total) => {
            setText(progress, `Loading ${count(loaded)} of ${plural(total, "node")} …`);
            return !ended;
          });
          if (ended || !run) return;
          picture = null;
          await look(run);
        }
        if (ended) return;
        kept = run;
        put(errors);
        setText(progress, "");
        await draw();
      } catch (error) {
        if (ended) return;
        setText(progress, "");
        put(errors, explain(error));
        if (error.status === 404 || error.status === 403) return;
      }
    }
    if (!ended) timer = setTimeout(turn, run && OVER.includes(run.flow.state) ? ENDED_EVERY : EVERY);
  }

  async function draw() {
    if (!picture) {
      const folded = fold(run.nodes.map((node) => node.service), run.needs);
      await pause();
      if (ended) return;
      picture = build(folded);
      picture.center();
      await pause();
    }
    picture.update();
  }

  /** The parts that stay while the graph stays. */
  function build(folded) {
    const { boxes } = folded;
    const meter = bar();
    const numbers = h("div");
    const tabs = filters("State of the nodes", STATES.map(([key, title]) => ({ key, title, href: address("run", id, { ...chosen, state: key }) })));
    const only = h("p", { class: "note" });
    const rows = table({
      caption: "Nodes",
      key: (node) => String(node.number),
      sort: "number",
      filter: (node) => `${node.node} ${node.service} ${node.state} ${node.reason}`,
      nothing: "No node is in this state.",
      columns: [
        { key: "number", title: "#", number: true, wide: true, cell: (node) => String(node.number) },
        { key: "node", title: "Node", grow: 40, cell: (node) => (hasJob(node) ? name(node.node, `#/job/${node.job}`) : name(node.node)) },
        { key: "service", title: "Service", grow: 25, wide: true, cell: (node) => serviceLink(node.service) },
        { key: "state", title: "State", cell: (node) => state(node.state) },
        { key: "attempts", title: "Attempts", number: true, cell: (node) => (node.attempts ? count(node.attempts) : "–") },
        { key: "created", title: "Released", wide: true, extra: true, cell: (node) => (node.created ? clock(node.created) : "–") },
        { key: "ended", title: "Ended", wide: true, cell: (node) => (node.ended ? clock(node.ended) : "–") },
        { key: "took", title: "Took", number: true, hint: "From its release to its end", sort: took, cell: (node) => tookText(node) || "–" },
        { key: "reason", title: "Progress, reason", grow: 35, long: true, cell: (node) => (node.state === "running" && progressBar(node.progress)) || node.reason },
        { key: "trace", title: "Trace", cell: (node) => (hasJob(node) ? h("a", { href: traceOf(node) }, "requests") : "–") },
      ],
    });

    function describe(box) {
      const nodes = box.numbers.map((number) => run.nodes[number]);
      if (nodes.length === 1) return { title: nodes[0].node, state: nodes[0].state, cause: nodes[0].reason, note: tookText(nodes[0]) };
      const counts = countsOf(nodes);
      const services = new Set(nodes.map((node) => node.service));
      return { title: `${services.size === 1 ? nodes[0].service : plural(services.size, "service")} × ${count(nodes.length)}`, counts };
    }

    /** One node leads to its job; a box of many, or a node without a job, to the list below. */
    function href(box) {
      const node = run.nodes[box.numbers[0]];
      return box.numbers.length === 1 && hasJob(node) ? `#/job/${node.job}` : address("run", id, { box: String(box.numbers[0]) });
    }

    const drawn = graph(folded, describe, href, (index) => {
      const key = String(boxes[index].numbers[0]);
      choose({ ...chosen, box: chosen.box === key ? "" : key });
    });

    function choose(next) {
      chosen = next;
      window.history.replaceState(null, "", address("run", id, chosen));
      update();
    }

    tabs.element.addEventListener("click", (event) => {
      const link = event.target.closest("a");
      if (!link) return;
      event.preventDefault(); // the nodes need not be fetched again
      choose({ ...chosen, state: link.dataset.key });
    });

    function update() {
      const { flow, nodes } = run;
      setText(heading1, flow.name || id);
      put(word, state(flow.state, flow.reason));
      const counts = countsOf(nodes);
      meter.update(counts, flow.total);
      put(numbers, facts([
        ["Done", `${count(flow.done)} of ${count(flow.total)}`],
        ["Dead", flow.dead ? h("span", { class: "error" }, count(flow.dead)) : ""],
        ["Skipped", flow.skipped ? count(flow.skipped) : ""],
        ["Cancelled", flow.cancelled ? count(flow.cancelled) : ""],
        ["Started", clock(flow.created)],
        ["Ended", flow.ended ? clock(flow.ended) : ""],
        ["Took", duration((Date.parse(flow.ended || new Date().toISOString()) - Date.parse(flow.created)) * 1000)],
        ["Edges", count(flow.edges)],
        ["Key", flow.key],
        ["Reason", flow.reason],
        ["Id", h("span", { class: "mono" }, id)],
      ]));
      put(actions, OVER.includes(flow.state) ? (flow.done < flow.total ? h("button", { type: "button", class: "primary", onclick: () => retryFlow(id, turn) }, "Retry") : null)
        : h("button", { type: "button", onclick: () => cancelFlow(id, turn) }, "Cancel"));
      const box = boxes.findIndex((one) => String(one.numbers[0]) === chosen.box);
      const some = box < 0 ? nodes : boxes[box].numbers.map((number) => nodes[number]);
      const inBox = box < 0 ? counts : countsOf(some);
      tabs.counts(Object.fromEntries(STATES.map(([key]) => [key, key ? (inBox[key] ? count(inBox[key]) : "") : count(some.length)])));
      tabs.select(chosen.state);
      drawn.update();
      drawn.select(box);
      put(only, box < 0 ? null : [`Only ${describe(boxes[box]).title}. `, h("button", { type: "button", class: "small", onclick: () => choose({ ...chosen, box: "" }) }, "Show all nodes")]);
      rows.set(chosen.state ? some.filter((node) => node.state === chosen.state) : some);
    }

    put(body, numbers, meter.element, drawn.element,
      folded.per > 1 ? h("p", { class: "note" }, `A column has ${folded.per} layers of the graph.`) : null,
      section("Nodes", tabs.element, only, rows.element));
    if (!run.nodes.length) put(body, empty("This flow has no nodes."));
    return { update, center: drawn.center };
  }

  turn();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}
