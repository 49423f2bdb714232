// Actions on requests, workers, services and jobs. Destructive ones are confirmed. Each is a call of a built-in service, so the
// same permissions apply as on the command line.

import { h, put, setText } from "./dom.js";
import { call, text } from "./feed.js";
import { plural } from "./format.js";

/** Asks for confirmation, runs `act`, then shows the result. */
function confirmed(title, text, button, act) {
  const dialog = document.getElementById("dialog");
  const cancelButton = h("button", { type: "button", onclick: () => dialog.close() }, "Keep");
  const go = h("button", { type: "button", class: "danger", onclick: async () => {
    go.disabled = true;
    try {
      await act();
      dialog.close();
    } catch (error) {
      put(note, `Failed: ${error.message}`);
      go.disabled = false;
    }
  } }, button);
  const note = h("p", { class: "error", role: "alert" });
  put(dialog, h("h2", { id: "dialog-title" }, title), h("p", null, text), note, h("div", { class: "actions" }, cancelButton, go));
  dialog.showModal();
  cancelButton.focus();
}

/** Calls a built-in service with a JSON object, and frames after it. Its answer is JSON, too; {"error", "text"} is a failure. */
export async function ask(service, body, ...frames) {
  const reply = await call(service, [JSON.stringify(body), ...frames], 10);
  const answer = reply.frames.length ? JSON.parse(text([reply.frames[0]])) : {};
  if (answer.error) throw new Error(answer.text || answer.error);
  return answer;
}

/** Runs at once, and shows an error if it failed. */
async function atOnce(title, act) {
  try {
    await act();
  } catch (error) {
    const dialog = document.getElementById("dialog");
    put(dialog, h("h2", { id: "dialog-title" }, title), h("p", { class: "error" }, error.message), h("form", { method: "dialog" }, h("button", null, "Close")));
    dialog.showModal();
  }
}

export const cancelRequest = (request) => confirmed("Cancel the request", `Cancel ${request}? Its client gets the failure "cancelled".`, "Cancel it", () => ask("polydomo.withdraw", { request }));
export const cancelJob = (job, then) => confirmed("Cancel the job", `Cancel ${job}? It does not run again.`, "Cancel it", () => ask("polydomo.cancel", { job }).then(then));
export const drainWorker = (worker) => confirmed("Drain the worker", `Drain ${worker}? It finishes its requests and gets no new ones.`, "Drain", () => ask("polydomo.drain", { worker }));
export const drainService = (service) => confirmed("Drain the service", `Drain ${service}? Running requests finish, and new ones are rejected until it is resumed.`, "Drain", () => ask("polydomo.drain", { service }));
export const pause = (service) => confirmed("Pause the service", `Pause ${service}? Its requests wait until it is resumed.`, "Pause", () => ask("polydomo.pause", { service }));
export const resume = (service) => atOnce("Resume", () => ask("polydomo.resume", { service }));
export const resumeWorker = (worker) => atOnce("Resume", () => ask("polydomo.resume", { worker }));
export const retryDead = (job, then) => atOnce("Retry", () => ask("polydomo.retry", { job }).then(then));
export const dropDead = (job, then) => confirmed("Drop the dead job", `Drop ${job}? It cannot be retried afterwards.`, "Drop it", () => ask("polydomo.drop", { job }).then(then));
export const retryMany = (jobs, then) => confirmed("Retry dead jobs", `Retry ${plural(jobs.length, "job")}?`, "Retry", () => ask("polydomo.retry", { jobs }).then(then));
export const dropMany = (jobs, then) => confirmed("Drop dead jobs", `Drop ${plural(jobs.length, "job")}? They cannot be retried afterwards.`, "Drop", () => ask("polydomo.drop", { jobs }).then(then));
export const cancelFlow = (flow, then) => confirmed("Cancel the flow", `Cancel ${flow}? Open nodes are cancelled, and no further node starts.`, "Cancel it", () => ask("polydomo.flow.cancel", { flow }).then(then));
export const retryFlow = (flow, then) => atOnce("Retry", () => ask("polydomo.flow.retry", { flow }).then(then));
export const runSchedule = (name) => atOnce("Run now", () => ask("polydomo.fire", { name }));
export const removeSchedule = (name) => confirmed("Remove the schedule", `Remove ${name}?`, "Remove", () => ask("polydomo.unschedule", { name }));

/** One button that pauses a service or resumes a paused or drained one, and one beside it that drains it. */
export function serviceActions(size) {
  let current = {};
  const held = () => current.state === "paused" || current.state === "drained";
  const toggle = h("button", { type: "button", class: size, onclick: () => (held() ? resume : pause)(current.name) }, "Pause");
  const drain = h("button", { type: "button", class: size, onclick: () => drainService(current.name) }, "Drain");
  return { element: h("span", { class: "actions" }, toggle, drain), update(row) {
    current = row;
    setText(toggle, held() ? "Resume" : "Pause");
    drain.disabled = row.state === "drained";
  } };
}

/** A button that drains a worker, or resumes a drained one. */
export function workerAction() {
  let current = {};
  const element = h("button", { type: "button", class: "small", onclick: () => (current.draining ? resumeWorker : drainWorker)(current.worker) }, "Drain");
  return { element, update(row) {
    current = row;
    setText(element, row.draining ? "Resume" : "Drain");
  } };
}
